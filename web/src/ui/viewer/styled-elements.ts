/**
 * Elements for xterm.js under a content security policy without inline styles. xterm.js writes
 * style elements and `style` attributes, which the policy blocks, and has no setting to avoid them.
 * While a terminal is open, document.createElement returns elements that replace both: the text of
 * a style element becomes a constructed style sheet, and a `style` attribute is set as a property,
 * which the policy allows. All other elements are unchanged.
 */
type Make = (name: string, options?: ElementCreationOptions) => HTMLElement;

const own: Make = Reflect.get(Document.prototype, 'createElement');

/** It is in the page only so that it can be removed. */
function styleElement(): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const element = own.call(document, 'span');
  element.hidden = true;
  let text = '';
  Object.defineProperty(element, 'textContent', {
    get: () => text,
    set: (css: string) => {
      text = css;
      sheet.replaceSync(css);
    },
  });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
    HTMLElement.prototype.remove.call(element);
  };
  return element;
}

const make: Make = (name, options) => {
  if (name === 'style') return styleElement();
  const element = own.call(document, name, options);
  element.setAttribute = (attribute, value) => {
    if (attribute === 'style') element.style.cssText = value;
    else HTMLElement.prototype.setAttribute.call(element, attribute, value);
  };
  return element;
};

let users = 0;

/**
 * Installs the replacement. The returned function removes it unless another user still needs it.
 */
export function styledElements(): () => void {
  if (users++ === 0) Object.defineProperty(document, 'createElement', { configurable: true, writable: true, value: make });
  return () => {
    // Deleting the own property restores the prototype's method.
    if (--users === 0) Reflect.deleteProperty(document, 'createElement');
  };
}
