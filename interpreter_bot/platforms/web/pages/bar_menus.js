// The menus of the bar: Python, sharing, and all other commands.

import { $, ICONS, address, download, cleanText } from "./dom.js";
import { confirmRestart, askToConfirm } from "./dialogs.js";
import { openMenu } from "./menus.js";
import { dialogWords, menuWords } from "./later_words.js";
import { buttonWords } from "./words.js";

Object.assign(ICONS, {
  braces: "M8 4c-3 0-1 7-4 8 3 1 1 8 4 8M16 4c3 0 1 7 4 8-3 1-1 8-4 8",
  chart: "M5 20V10M12 20V4M19 20v-7",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M12 8v4l3 2",
  fork: "M6 4v16M6 14c8 0 12-2 12-9M15 8l3-3 3 3",
  gauge: "M4 18a9 9 0 1 1 16 0M12 15l4-5",
  help: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M10 10a2 2 0 1 1 3 1.7c-1 .6-1 1-1 1.8M12 16h.01",
  marker: "M12 21c-5-6-7-8-7-11a7 7 0 0 1 14 0c0 3-2 5-7 11M12 8a2 2 0 1 0 0 4 2 2 0 0 0 0-4",
  moon: "M19 14A8 8 0 0 1 10 5a8 8 0 1 0 9 9",
  notes: "M6 4h12v11l-5 5H6zM13 20v-5h5M9 8h6M9 12h4",
  plug: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  power: "M12 4v8M7 6.5a8 8 0 1 0 10 0",
  print: "M7 8V4h10v4M7 16H4V8h16v8h-3M7 13h10v7H7z",
  screen: "M4 5h16v11H4zM9 20h6M12 16v4",
  shield: "M12 3l7 3v6c0 4-3 7-7 9-4-2-7-5-7-9V6z",
  spark: "M12 4l2 6 6 2-6 2-2 6-2-6-6-2 6-2z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
});

/** Open the menu of a button. */
export function openBarMenu(button, context) {
  openMenu(button, MENUS[button.id](context));
}

const MENUS = {
  "python-state": ({ sendAction, runAgain, isRunning }) => [
    [$("python-state").innerText,
      [menuWords.variables, "braces", () => sendAction({ do: "show", panel: "variables" })],
      [menuWords.rebuild, "again", runAgain],
      ...(isRunning ? [[menuWords.stop, "stop", () => sendAction({ do: "stop" })]] : []),
      [menuWords.restart, "power", () => restart(sendAction)]],
  ],

  share: (context) => [
    [menuWords.save,
      [menuWords.asPage, "globe", () => save(context, "html")],
      [menuWords.asNotebook, "file", () => save(context, "ipynb")],
      [menuWords.asPython, "code", () => save(context, "py")]],
    ["", [menuWords.print, "print", () => print()]],
  ],

  more({ sendAction }) {
    const show = (panel) => () => sendAction({ do: "show", panel });
    const isCodeShown = !document.body.classList.contains("without-code");
    const theme = localStorage.getItem("theme") ?? "";
    const themes = [[menuWords.systemColours, "screen", ""], [menuWords.light, "sun", "light"], [menuWords.dark, "moon", "dark"]];
    return [
      [menuWords.conversation,
        [menuWords.fork, "fork", () => sendAction({ do: "fork" })],
        [menuWords.undo, "undo", () => undo(sendAction)]],
      [menuWords.settings,
        [menuWords.model, "spark", show("model"), { state: cleanText($("model").value) }],
        [menuWords.approval, "shield", show("approval")], [menuWords.place, "marker", show("place")], [menuWords.memory, "notes", show("memory")],
        [menuWords.showCode, "code", () => showCode(!isCodeShown), { isOn: isCodeShown }]],
      [menuWords.colours, ...themes.map(([label, iconName, name]) => [label, iconName, () => chooseTheme(name), { isOn: name === theme, isRadio: true }])],
      [menuWords.about,
        [menuWords.schedules, "clock", show("schedules")],
        [menuWords.usage, "chart", show("usage")], [menuWords.limits, "gauge", show("limits")], [menuWords.network, "globe", show("network")],
        [menuWords.tools, "plug", show("tools")], [menuWords.help, "help", show("help")]],
    ];
  },
};

function save({ thread, title }, suffix) {
  download(address("/notebook", { thread, name: title, suffix }));
}

async function restart(sendAction) {
  const options = await confirmRestart();
  if (options) sendAction({ do: "reset", ...options });
}

async function undo(sendAction) {
  if (await askToConfirm(dialogWords.undo, dialogWords.undoes, { action: buttonWords.undo })) sendAction({ do: "undo" });
}

function showCode(isShown) {
  document.body.classList.toggle("without-code", !isShown);
  localStorage.setItem("code", isShown ? "shown" : "hidden");
}

/** Store the colours for this browser; other tabs use them once they are loaded again. "" follows the system. */
function chooseTheme(theme) {
  localStorage.setItem("theme", theme);
  document.documentElement.style.colorScheme = theme;
  dispatchEvent(new Event("theme"));
}
