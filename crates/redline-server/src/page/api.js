// Requests to the server.

const KEY = "redline-api-key";

export const getKey = () => sessionStorage.getItem(KEY) ?? "";
export const setKey = (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY));

// An error with the fields of the server's error object.
export class RequestError extends Error {
  constructor(message, fields = {}) {
    super(message);
    Object.assign(this, fields);
  }
}

// Sends a request: POST if there is a body.
async function ask(path, body, signal) {
  const headers = {};
  if (getKey()) headers.authorization = `Bearer ${getKey()}`;
  if (body) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw unreachable(error);
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export const get = async (path) => (await ask(path)).json();
export const getText = async (path) => (await ask(path)).text();
export const post = async (path, body, signal) => (await ask(path, body, signal)).json();

// Sends a request with "stream": true, and yields the documents of the events as they come.
export async function* events(path, body, signal) {
  const answer = await ask(path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read().catch((error) => Promise.reject(unreachable(error)));
      if (done) throw new RequestError("The answer ended before its last event.");
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new RequestError(event.error.message, event.error);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function unreachable(error) {
  return error.name === "AbortError" ? error : new RequestError(`The server does not answer: ${error.message}`);
}

async function refusal(answer) {
  const text = await answer.text();
  const about = { status: answer.status, retryAfter: answer.headers.get("retry-after") };
  try {
    const { message, param, code } = JSON.parse(text).error;
    return new RequestError(message, { ...about, param, code });
  } catch {
    return new RequestError(text || answer.statusText || "The request was refused.", about);
  }
}
