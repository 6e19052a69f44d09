// act.js - an administrator's order from a button, and what came of it.

import { toast } from "./dom.js";

export function changed() {
  document.dispatchEvent(new Event("plateau-changed"));
}

// Runs the order and says what came of it.
export async function act(button, work, words) {
  button.disabled = true;
  try {
    toast(words(await work()));
  } catch (error) {
    toast(error.message, "bad");
  }
  button.disabled = false;
  changed();
}
