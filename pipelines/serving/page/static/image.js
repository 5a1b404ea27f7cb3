// Image page: an image is dropped, pasted, chosen or taken; shows class scores, the dense score map and boxes.
import { $, act, make, problem } from './app.js';

const canvas = $('picture');
let bitmap, found, running;

$('file').addEventListener('change', () => $('file').files[0] && ask($('file').files[0]));
addEventListener('paste', (event) => {
  const file = [...event.clipboardData.files].find((each) => each.type.startsWith('image/'));
  if (file) ask(file);
});
for (const kind of ['dragenter', 'dragover']) {
  $('drop').addEventListener(kind, (event) => { event.preventDefault(); $('drop').classList.add('over'); });
}
for (const kind of ['dragleave', 'drop']) $('drop').addEventListener(kind, () => $('drop').classList.remove('over'));
$('drop').addEventListener('drop', (event) => {
  event.preventDefault();
  if (event.dataTransfer.files[0]) ask(event.dataTransfer.files[0]);
});
for (const chip of document.querySelectorAll('[data-example]')) {
  chip.addEventListener('click', async () => ask(await (await fetch(chip.dataset.example)).blob()));
}

$('camera').addEventListener('click', async () => {
  try {
    $('video').srcObject = await navigator.mediaDevices.getUserMedia({ video: true });
  } catch {
    problem('There is no camera, or it may not be used. Browsers allow it only on this machine or over HTTPS.');
    return;
  }
  $('video').hidden = $('shoot').hidden = false;
  await $('video').play();
});
$('shoot').addEventListener('click', () => {
  const still = make('canvas', { width: $('video').videoWidth, height: $('video').videoHeight });
  still.getContext('2d').drawImage($('video'), 0, 0);
  still.toBlob((blob) => ask(blob), 'image/jpeg', 0.95);
  for (const track of $('video').srcObject.getTracks()) track.stop();
  $('video').hidden = $('shoot').hidden = true;
});

async function ask(blob) {
  running?.abort();
  running = new AbortController();
  problem('');
  try {
    bitmap = await createImageBitmap(blob);
  } catch {
    bitmap = undefined; // the server reports what is wrong with it
  }
  found = undefined;
  draw();
  try {
    found = await act('image', blob, { signal: running.signal });
  } catch (error) {
    if (error.name !== 'AbortError') problem(error.message);
    if (error.name !== 'AbortError') clear();
    return;
  }
  show();
}

function clear() {
  $('classes').replaceChildren();
  $('said').textContent = $('confused').textContent = '';
  $('layers').hidden = true;
}

const title = (each) => (each.description && each.description !== each.label ? `${each.description} (${each.label})` : each.label);

function show() {
  $('classes').replaceChildren(...found.classes.map((each) => make('li', {},
    make('span', {}, title(each)), make('span', { class: 'value' }, `${(100 * each.probability).toFixed(1)}%`),
    make('meter', { min: '0', max: '1', value: String(each.probability), 'aria-label': title(each) }))));
  $('said').textContent = `${found.milliseconds} ms.`;
  const layers = [['', 'nothing']];
  if (found.map) for (const label of Object.keys(found.map.scores)) layers.push([label, `where ${title(found.classes.find((each) => each.label === label))}`]);
  $('layers').hidden = layers.length < 2;
  $('layers').replaceChildren(make('legend', {}, 'Over the image'), ...layers.map(([value, text], n) => {
    const input = make('input', { type: 'radio', name: 'layer', value });
    input.checked = n === 0;
    input.addEventListener('change', draw);
    return make('label', {}, input, ` ${text}`);
  }));
  const best = found.classes[0];
  $('confused').textContent = !best.tested ? '' : best.taken_for.length
    ? `In the test set, ${best.tested} images had this class; it was confused with ${best.taken_for.map(([label, count]) => `${label} (${count})`).join(', ')}.`
    : `In the test set, ${best.tested} images had this class, and it was never confused with another.`;
  draw();
}

function draw() {
  const context = canvas.getContext('2d');
  const scale = bitmap ? Math.min(480 / bitmap.width, 480 / bitmap.height) : 1;
  canvas.width = bitmap ? Math.round(bitmap.width * scale) : 320;
  canvas.height = bitmap ? Math.round(bitmap.height * scale) : 120;
  $('hint').hidden = Boolean(bitmap);
  canvas.setAttribute('aria-label', bitmap ? `Your image${found ? `: ${title(found.classes[0])}` : ''}` : 'No image');
  if (!bitmap) return;
  context.imageSmoothingEnabled = scale < 1;
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const layer = document.querySelector('input[name="layer"]:checked')?.value;
  if (found?.map && layer) heat(context, found.map, found.map.scores[layer]);
  for (const [n, each] of (found?.classes || []).entries()) if (each.box) box(context, each, n);
}

function heat(context, map, scores) {
  const small = make('canvas', { width: map.width, height: map.height });
  const pixels = small.getContext('2d').createImageData(map.width, map.height);
  scores.forEach((score, n) => pixels.data.set([255, Math.round(230 * (1 - score)), 0, Math.round(130 * score)], 4 * n));
  small.getContext('2d').putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = true;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

function box(context, each, n) {
  if (n > 1) return; // more than two would hide each other
  const [left, upper, right, lower] = each.box.map((end, axis) => end * (axis % 2 ? canvas.height : canvas.width));
  context.lineWidth = n ? 2 : 4;
  context.strokeStyle = n ? '#ffb000' : '#00b4d8';
  context.strokeRect(left, upper, right - left, lower - upper);
  context.font = '600 15px system-ui';
  context.fillStyle = context.strokeStyle;
  context.fillText(each.description || each.label, left + 4, Math.max(16, upper + 18));
}
