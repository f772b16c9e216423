// The menus of the bar: about Python, to take a conversation along, and everything else.

import { $, address, download, plain } from "./dom.js";
import { askedToRestart, confirmed } from "./dialogs.js";
import { openMenu } from "./menus.js";

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
      ["Variables", "braces", () => say({ do: "show", panel: "variables" })],
      ["Rebuild lost variables", "again", runAgain],
      ...(isRunning ? [["Stop the code", "stop", () => say({ do: "stop" })]] : []),
      ["Restart Python…", "power", () => restart(say)]],
  ],

  share: (around) => [
    ["Save the conversation",
      ["As a web page", "globe", () => save(around, "html")],
      ["As a notebook", "file", () => save(around, "ipynb")],
      ["As Python", "code", () => save(around, "py")]],
    ["", ["Print", "print", () => print()]],
  ],

  more({ say }) {
    const show = (panel) => () => say({ do: "show", panel });
    const isCodeShown = !document.body.classList.contains("without-code");
    const theme = localStorage.getItem("theme") ?? "";
    const themes = [["As the system", "screen", ""], ["Light", "sun", "light"], ["Dark", "moon", "dark"]];
    return [
      ["Conversation",
        ["Fork conversation", "fork", () => say({ do: "fork" })],
        ["Undo last answer…", "undo", () => undo(say)]],
      ["Settings",
        ["Model", "spark", show("model"), { state: plain($("model").value) }],
        ["Approval", "shield", show("approval")],
        ["Show code", "code", () => showCode(!isCodeShown), { isOn: isCodeShown }]],
      ["Colours", ...themes.map(([words, glyph, one]) => [words, glyph, () => chooseTheme(one), { isOn: one === theme, isOneOf: true }])],
      ["About this bot",
        ["Usage", "chart", show("usage")], ["Limits", "gauge", show("limits")], ["Network", "globe", show("network")],
        ["Tools", "plug", show("tools")], ["Help", "help", show("help")]],
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
  const told = "Variables, files and history go back to before the last question.";
  if (await confirmed("Undo the last answer?", told, { action: "Undo" })) say({ do: "undo" });
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
