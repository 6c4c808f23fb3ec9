import { describe, expect, it } from 'vitest';
import { styledElements } from './styled-elements';

describe('styledElements', () => {
  it('turns style elements into constructed sheets, which go with them', () => {
    const end = styledElements();
    const before = document.adoptedStyleSheets.length;
    const style = document.createElement('style');
    document.body.append(style);
    style.textContent = '.a { color: red; }';
    expect(style.tagName).not.toBe('STYLE');
    expect(style.textContent).toBe('.a { color: red; }');
    expect(style.childNodes).toHaveLength(0);
    expect(document.adoptedStyleSheets.at(-1)?.cssRules[0]?.cssText).toContain('red');
    style.remove();
    expect(document.adoptedStyleSheets).toHaveLength(before);
    expect(style.isConnected).toBe(false);
    end();
  });

  it('leaves other attributes as they are', () => {
    const end = styledElements();
    const span = document.createElement('span');
    span.setAttribute('aria-label', 'x');
    expect(span.getAttribute('aria-label')).toBe('x');
    end();
  });

  it('ends with the last who needs it, and leaves the page as it was', () => {
    const [first, second] = [styledElements(), styledElements()];
    first();
    expect(document.createElement('style').tagName).not.toBe('STYLE');
    second();
    expect(document.createElement('style').tagName).toBe('STYLE');
    expect(Object.hasOwn(document, 'createElement')).toBe(false);
  });
});
