// Whether two pictures show the same: what is saved of a figure is often shown as well, and differs
// in its resolution and its margins alone. Fetched with the first turn that has both.

const SMALL = 256;
const SIDE = 24;
const MOST_DIFFERENCE = 10;
const MOST_STRETCH = 1.08;

function canvas(width, height) {
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  return context;
}

/** What is within the margins of a picture, coarsely: its brightness in a few squares. */
async function sketch(image) {
  await image.decode();
  const scale = SMALL / Math.max(image.naturalWidth, image.naturalHeight, 1);
  const width = Math.max(Math.round(image.naturalWidth * scale), 1), height = Math.max(Math.round(image.naturalHeight * scale), 1);
  const whole = canvas(width, height);
  whole.drawImage(image, 0, 0, width, height);
  const { data } = whole.getImageData(0, 0, width, height);
  const isMargin = (at) => Math.abs(data[at] - data[0]) + Math.abs(data[at + 1] - data[1]) + Math.abs(data[at + 2] - data[2]) < 48;
  let left = width, right = 0, top = height, bottom = 0;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      if (isMargin(4 * (y * width + x))) continue;
      left = Math.min(left, x);
      right = Math.max(right, x + 1);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y + 1);
    }
  if (right <= left) return null;
  const squares = canvas(SIDE, SIDE);
  squares.imageSmoothingQuality = "high";
  squares.drawImage(whole.canvas, left, top, right - left, bottom - top, 0, 0, SIDE, SIDE);
  const pixels = squares.getImageData(0, 0, SIDE, SIDE).data;
  const bright = Array.from({ length: SIDE * SIDE }, (_, at) => (pixels[4 * at] + pixels[4 * at + 1] + pixels[4 * at + 2]) / 3);
  return { bright, shape: (right - left) / (bottom - top) };
}

/** @param {HTMLImageElement} one @param {HTMLImageElement} other */
export async function areAlike(one, other) {
  const [first, second] = await Promise.all([one, other].map((image) => sketch(image).catch(() => null)));
  if (!first || !second) return false;
  const stretch = first.shape / second.shape;
  const difference = first.bright.reduce((sum, value, at) => sum + Math.abs(value - second.bright[at]), 0) / first.bright.length;
  return Math.max(stretch, 1 / stretch) < MOST_STRETCH && difference < MOST_DIFFERENCE;
}
