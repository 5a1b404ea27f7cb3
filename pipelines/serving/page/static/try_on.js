// Try-on page: choose a person and a garment, add your own folder, and show the generated images.
import { $, act, make, model, problem, roving } from './app.js';

const ORIGINS = { made: 'generated', test: 'test set', own: 'your folder', photo: 'your photograph' };
const chosen = {};
const blobs = {};
load();

async function load() {
  let found;
  try {
    found = await act('people', {});
  } catch (error) {
    problem(error.message);
    return;
  }
  for (const [what, id] of [['person', 'persons'], ['garment', 'garments']]) {
    for (const sample of found.samples) add(what, id, `/models/${encodeURIComponent(model.dataset.name)}/pictures/${what}/${sample.number}`, sample.number, ORIGINS[sample.from]);
    roving($(id), (item) => item.click());
  }
  $('persons').children[0]?.click();
  $('garments').children[1]?.click();
}

function add(what, id, source, value, origin) {
  const first = !$(id).children.length;
  const item = make('button', { type: 'button', role: 'radio', 'aria-checked': 'false', tabIndex: first ? 0 : -1, 'aria-label': `${what} ${$(id).children.length + 1}, ${origin}` },
    make('img', { src: source, alt: '', loading: 'lazy' }), origin);
  item.addEventListener('click', () => {
    for (const each of $(id).children) {
      each.setAttribute('aria-checked', String(each === item));
      each.tabIndex = each === item ? 0 : -1;
    }
    chosen[what] = value;
    blobs[what] = source;
    $('wear').disabled = chosen.person === undefined || chosen.garment === undefined;
  });
  $(id).append(item);
  return item;
}

$('wear').addEventListener('click', async () => {
  problem('');
  $('wear').disabled = true;
  $('said').textContent = 'Generating the image.';
  try {
    const found = await act('wear', chosen);
    for (const [id, key] of [['after', 'image'], ['warped', 'warped'], ['parse', 'parse']]) $(id).src = `data:image/png;base64,${found[key]}`;
    $('before').src = blobs.person;
    $('result').hidden = false;
    slide();
    $('said').textContent = `Generated in ${(found.milliseconds / 1000).toFixed(1)} s.`;
  } catch (error) {
    problem(error.message);
    $('said').textContent = '';
  }
  $('wear').disabled = false;
});

function slide() {
  $('after').style.clipPath = `inset(0 0 0 ${100 - $('slide').value}%)`;
}
$('slide').addEventListener('input', slide);

// Photographs: the server makes a sample from each, which is added to the end of its row.
for (const [what, id] of [['person', 'persons'], ['garment', 'garments']]) {
  $(`${what}-photo`)?.addEventListener('change', (event) => photographed(what, id, event.target));
}

async function photographed(what, id, input) {
  const [file] = input.files;
  input.value = '';
  if (!file) return;
  problem('');
  $('made').hidden = true;
  $('said').textContent = 'Processing the photograph …';
  try {
    const found = await act('photograph', { kind: what, photograph: await base64(file) });
    $('findings').replaceChildren(...found.findings.map((sentence) => make('li', {}, sentence)));
    $('steps').replaceChildren(...Object.entries(found.steps).map(([title, image]) => make('figure', {},
      make('img', { src: `data:image/jpeg;base64,${image}`, alt: `${title} of the photograph` }), make('figcaption', {}, title))));
    $('made').hidden = false;
    const shown = found.files[what === 'person' ? 'image' : 'cloth'];
    if (shown && (what === 'garment' || found.files.parse)) {
      const item = add(what, id, `data:image/jpeg;base64,${shown}`, found.files, ORIGINS.photo);
      item.click();
      item.scrollIntoView({ block: 'nearest' });
    }
    $('said').textContent = found.findings.length ? 'Check the findings before you try it on.' : 'No problems found.';
  } catch (error) {
    problem(error.message);
    $('said').textContent = '';
  }
}

// The visitor's own folder: files are found by folder names, in VITON-HD's layout.
const FOLDERS = { image: 'image', parse: 'image-parse', pose_json: 'openpose-json', pose_image: 'openpose-img', cloth: 'cloth', cloth_mask: 'cloth-mask' };
$('folder').addEventListener('change', async () => {
  problem('');
  const files = {};
  for (const file of $('folder').files) {
    const parts = file.webkitRelativePath.split('/');
    const folder = parts.at(-2)?.replace('_', '-').replace(/^image-parse.*/, 'image-parse');
    const kind = Object.keys(FOLDERS).find((key) => FOLDERS[key] === folder);
    const stem = file.name.replace(/\.\w+$/, '').replace(/_(keypoints|rendered)$/, '');
    if (kind) ((files[kind] ??= {})[stem] = file);
  }
  const people = Object.keys(files.image ?? {}).slice(0, 30), garments = Object.keys(files.cloth ?? {}).slice(0, 30);
  if (!people.length || !garments.length) {
    problem('This folder has no folder image with people, or no folder cloth with garments.');
    return;
  }
  for (const stem of people) await own('person', 'persons', 'image', ['image', 'parse', 'pose_json', 'pose_image'], files, stem);
  for (const stem of garments) await own('garment', 'garments', 'cloth', ['cloth', 'cloth_mask'], files, stem);
  $('said').textContent = `${people.length} people and ${garments.length} garments of your folder are at the end of the rows.`;
});

async function own(what, id, shown, keys, files, stem) {
  const value = {};
  for (const key of keys) if (files[key]?.[stem]) value[key] = await base64(files[key][stem]);
  add(what, id, URL.createObjectURL(files[shown][stem]), value, ORIGINS.own);
}

async function base64(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = '';
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
