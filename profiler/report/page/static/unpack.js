// Arrays as run_page.py writes them.
const arrayTypes = { u16: Uint16Array, f32: Float32Array, f64: Float64Array };

function unpack(packed) {
  if (packed === null) return null;
  const text = atob(packed.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new arrayTypes[packed.type](bytes.buffer);
}
