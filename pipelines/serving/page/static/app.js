// Shared by all pages: requests to the model, error messages, and notices of a new version.
export const model = document.getElementById('model');
const name = model.dataset.name;

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in element && typeof value !== 'string') element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function problem(text) {
  $('problem').textContent = text;
  $('problem').hidden = !text;
}

// Sends a request to the server; if it is busy, retries once after the time it gives.
export async function act(action, body, { signal, retry = true } = {}) {
  const bytes = body instanceof Blob;
  let response;
  try {
    response = await fetch(`/models/${encodeURIComponent(name)}/try/${action}`, {
      method: 'POST', signal, body: bytes ? body : JSON.stringify(body),
      headers: { 'Content-Type': bytes ? 'application/octet-stream' : 'application/json' },
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('The server cannot be reached. It may have stopped: start it again and retry.');
  }
  if ((response.status === 429 || response.status === 503) && retry) {
    const seconds = Math.min(10, Number(response.headers.get('Retry-After')) || 1);
    await new Promise((done) => setTimeout(done, 1000 * seconds));
    return act(action, body, { signal, retry: false });
  }
  const found = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(found.error || `The server answered ${response.status}.`);
  version(found.version);
  return found;
}

function version(number) {
  if (!number || String(number) === model.dataset.version) return;
  model.dataset.version = number;
  $('version').textContent = number;
  $('changed').textContent = `Version ${number} answers now.`;
}

setInterval(async () => {
  if (document.hidden) return;
  try {
    const found = await (await fetch('/page/models')).json();
    version(found[name]);
  } catch { /* the next request reports it */ }
}, 5000);

// Moves the focus along a row of items with arrow keys; only one item is in the Tab order.
export function roving(container, choose) {
  container.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const items = [...container.children];
    const at = items.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = items[(at + step + items.length) % items.length];
    next.focus();
    choose(next);
  });
}
