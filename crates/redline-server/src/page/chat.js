// Chat: a conversation, whose messages are kept on this page only.

import { byId, make } from "./dom.js";
import { addSettings, generate, settings } from "./generation.js";
import { onSubmit } from "./run.js";

export function chat(panel, model) {
  addSettings(panel);
  const list = byId("conversation");
  let messages = [];
  byId("new-chat").addEventListener("click", () => {
    panel.querySelector(".stop").click();
    messages = [];
    list.replaceChildren();
    panel.querySelector(".result").replaceChildren();
    panel.querySelector("[name=message]").focus();
  });
  onSubmit(panel, async (run) => {
    const input = run.form.message;
    const asked = { role: "user", content: input.value };
    const body = { model: model(), messages: [...messages, asked], ...settings(run.form) };
    const [question, answer] = [turn("You", input.value), turn("Model", "")];
    list.append(question, answer);
    const text = answer.querySelector(".text");
    try {
      await generate("v1/chat/completions", body, (choice) => choice.delta.content, text, run);
    } catch (error) {
      // The conversation goes on from the last complete answer.
      question.remove();
      answer.remove();
      throw error;
    }
    if (!question.isConnected) return;
    messages.push(asked, { role: "assistant", content: text.textContent });
    input.value = "";
  });
}

// A message of the conversation.
function turn(who, content) {
  return make("li", {}, make("span", { class: "who" }, who), make("p", { class: "text" }, content));
}
