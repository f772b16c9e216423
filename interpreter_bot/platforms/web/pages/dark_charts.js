// Put first into a page that code made, to be shown in dark colours: charts of plotly and Vega that
// leave their colours to their library get dark ones. All else stays as it was made.
(() => {
  const PAPER = "#202429", LINE = "#3d444c", INK = "#e4e6e8";
  const GROUNDS = /(?:bgcolor|backgroundcolor|landcolor|lakecolor)$/;
  const LINES = ["white", "#EBF0F8", "#DFE8F3", "#C8D4E3"];

  const darken = () => Object.assign(document.documentElement.style, { background: PAPER, colorScheme: "dark" });

  /** The colours of plotly's own template as dark ones. */
  function recoloured(value, key = "") {
    if (Array.isArray(value)) return value.map((singular) => recoloured(singular, key));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, singular]) => [name, recoloured(singular, name)]));
    if (value === "#2a3f5f") return INK;
    if (value === "#E5ECF6" || (value === "white" && GROUNDS.test(key))) return PAPER;
    return LINES.includes(value) ? LINE : value;
  }

  function ofPlotly(plotly) {
    const newPlot = (place, data, layout, config) => {
      const figure = Array.isArray(data) ? { data, layout, config } : { ...data };
      const { template, paper_bgcolor: paper, plot_bgcolor: plot, font } = figure.layout ?? {};
      if (template?.layout?.plot_bgcolor === "#E5ECF6" && !paper && !plot && !font?.color) {
        figure.layout = { ...figure.layout, template: recoloured(template) };
        darken();
      }
      return plotly.newPlot(place, figure);
    };
    return Object.create(plotly, { newPlot: { value: newPlot } });
  }

  const ofVega = (embed) => (place, spec, options = {}) => {
    if (spec?.background || spec?.config?.background || options.theme) return embed(place, spec, options);
    darken();
    return embed(place, spec, { ...options, theme: "dark", config: { background: PAPER, axis: { gridColor: LINE }, ...options.config } });
  };

  for (const [name, wrapped] of [["Plotly", ofPlotly], ["vegaEmbed", ofVega]]) {
    let library;
    Object.defineProperty(window, name, { configurable: true, get: () => library, set: (made) => (library = wrapped(made)) });
  }
})();
