// Runs first in a page that code made, if it is shown in dark colours: charts of plotly and Vega
// with their library's default colours get dark ones. Everything else stays unchanged.
(() => {
  const PAPER = "#202429", LINE = "#3d444c", INK = "#e4e6e8";
  const GROUNDS = /(?:bgcolor|backgroundcolor|landcolor|lakecolor)$/;
  const LINES = ["white", "#EBF0F8", "#DFE8F3", "#C8D4E3"];

  const darken = () => Object.assign(document.documentElement.style, { background: PAPER, colorScheme: "dark" });

  /** Replace the colours of plotly's own template by dark ones. */
  function recolour(value, key = "") {
    if (Array.isArray(value)) return value.map((item) => recolour(item, key));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, recolour(item, name)]));
    if (value === "#2a3f5f") return INK;
    if (value === "#E5ECF6" || (value === "white" && GROUNDS.test(key))) return PAPER;
    return LINES.includes(value) ? LINE : value;
  }

  function wrapPlotly(plotly) {
    const newPlot = (place, data, layout, config) => {
      const figure = Array.isArray(data) ? { data, layout, config } : { ...data };
      const { template, paper_bgcolor: paper, plot_bgcolor: plot, font } = figure.layout ?? {};
      if (template?.layout?.plot_bgcolor === "#E5ECF6" && !paper && !plot && !font?.color) {
        figure.layout = { ...figure.layout, template: recolour(template) };
        darken();
      }
      return plotly.newPlot(place, figure);
    };
    return Object.create(plotly, { newPlot: { value: newPlot } });
  }

  const wrapVegaEmbed = (embed) => (place, spec, options = {}) => {
    if (spec?.background || spec?.config?.background || options.theme) return embed(place, spec, options);
    darken();
    return embed(place, spec, { ...options, theme: "dark", config: { background: PAPER, axis: { gridColor: LINE }, ...options.config } });
  };

  for (const [name, wrap] of [["Plotly", wrapPlotly], ["vegaEmbed", wrapVegaEmbed]]) {
    let library;
    Object.defineProperty(window, name, { configurable: true, get: () => library, set: (newLibrary) => (library = wrap(newLibrary)) });
  }
})();
