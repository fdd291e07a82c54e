// Columns as report/packed.py writes them: typed arrays over one block of bytes.

const MISSING = -32768;
const about = JSON.parse(document.getElementById("about").textContent);

// the bytes of a deflated, base64 text; the text is dropped from the page once it is read
async function unpacked(id) {
  const element = document.getElementById(id);
  const text = element.textContent;
  element.remove();
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

const TYPES = { Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array };
let block = null;

function column(number) {
  const [start, length, type] = about.columns[number];
  return new TYPES[type](block, start, length);
}

// texts by row: one long text, cut where rows begin
function texts(number) {
  const all = new TextDecoder().decode(column(number));
  const starts = column(number + 1);
  return (row) => all.slice(starts[row], starts[row + 1]);
}

function marks([flat, ends]) {
  const places = column(flat),
    last = column(ends);
  return (row) => places.subarray(row ? last[row - 1] : 0, last[row]);
}

const bit = (bytes, place) => (bytes[place >> 3] >> (place & 7)) & 1;
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
