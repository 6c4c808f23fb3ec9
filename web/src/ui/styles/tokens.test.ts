import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const css = readFileSync(join(import.meta.dirname, 'tokens.css'), 'utf8');

/** The colours of a token in the light and the dark theme. */
function both(token: string): string[] {
  const [, light, dark] = new RegExp(`--${token}: light-dark\\((#[0-9a-f]{6}), (#[0-9a-f]{6})\\)`).exec(css) ?? [];
  if (!light || !dark) throw new Error(`no colours of ${token}`);
  return [light, dark];
}

/** The relative luminance of a colour, as WCAG 2 defines it. */
function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const c = parseInt(colour.slice(at, at + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [dark = 0, light = 0] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

test.each(['accent', 'accent-hover', 'danger', 'danger-hover'])('the white label of a button can be read on %s', (token) => {
  for (const colour of both(token)) expect(contrast('#ffffff', colour)).toBeGreaterThanOrEqual(4.5);
});

test.each(['text', 'muted', 'link', 'bad'])('%s can be read on every ground', (token) => {
  const text = both(token);
  for (const ground of ['bg', 'surface', 'sunken', 'hover']) {
    both(ground).forEach((colour, theme) => expect(contrast(text[theme] ?? '', colour)).toBeGreaterThanOrEqual(4.5));
  }
});
