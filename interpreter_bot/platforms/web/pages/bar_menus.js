// The menus of the bar: about Python, to take a conversation along, and everything else.

import { $, address, download, plain } from "./dom.js";
import { askedToRestart, confirmed } from "./dialogs.js";
import { openMenu } from "./menus.js";
import { buttonWords, dialogWords, menuWords } from "./words.js";

/**
 * Open the menu of a button.
 * @param {{thread: string, title: string, say(message: object): boolean, runAgain(): void, isRunning: boolean}} around
 */
export function openBarMenu(button, around) {
  openMenu(button, MENUS[button.id](around));
}

const MENUS = {
  "python-state": ({ say, runAgain, isRunning }) => [
    [$("python-state").innerText,
      [menuWords.variables, "braces", () => say({ do: "show", panel: "variables" })],
      [menuWords.rebuild, "again", runAgain],
      ...(isRunning ? [[menuWords.stop, "stop", () => say({ do: "stop" })]] : []),
      [menuWords.restart, "power", () => restart(say)]],
  ],

  share: (around) => [
    [menuWords.save,
      [menuWords.asPage, "globe", () => save(around, "html")],
      [menuWords.asNotebook, "file", () => save(around, "ipynb")],
      [menuWords.asPython, "code", () => save(around, "py")]],
    ["", [menuWords.print, "print", () => print()]],
  ],

  more({ say }) {
    const show = (panel) => () => say({ do: "show", panel });
    const isCodeShown = !document.body.classList.contains("without-code");
    const theme = localStorage.getItem("theme") ?? "";
    const themes = [[menuWords.systemColours, "screen", ""], [menuWords.light, "sun", "light"], [menuWords.dark, "moon", "dark"]];
    return [
      [menuWords.conversation,
        [menuWords.fork, "fork", () => say({ do: "fork" })],
        [menuWords.undo, "undo", () => undo(say)]],
      [menuWords.settings,
        [menuWords.model, "spark", show("model"), { state: plain($("model").value) }],
        [menuWords.approval, "shield", show("approval")],
        [menuWords.showCode, "code", () => showCode(!isCodeShown), { isOn: isCodeShown }]],
      [menuWords.colours, ...themes.map(([words, glyph, one]) => [words, glyph, () => chooseTheme(one), { isOn: one === theme, isOneOf: true }])],
      [menuWords.about,
        [menuWords.usage, "chart", show("usage")], [menuWords.limits, "gauge", show("limits")], [menuWords.network, "globe", show("network")],
        [menuWords.tools, "plug", show("tools")], [menuWords.help, "help", show("help")]],
    ];
  },
};

function save({ thread, title }, suffix) {
  download(address("/notebook", { thread, name: title, suffix }));
}

async function restart(say) {
  const wanted = await askedToRestart();
  if (wanted) say({ do: "reset", ...wanted });
}

async function undo(say) {
  if (await confirmed(dialogWords.undo, dialogWords.undoes, { action: buttonWords.undo })) say({ do: "undo" });
}

function showCode(isShown) {
  document.body.classList.toggle("without-code", !isShown);
  localStorage.setItem("code", isShown ? "shown" : "hidden");
}

/** Choose the colours of this browser, on all its tabs from when they are loaded; "" is as the system has them. */
function chooseTheme(theme) {
  localStorage.setItem("theme", theme);
  document.documentElement.style.colorScheme = theme;
  dispatchEvent(new Event("theme"));
}
