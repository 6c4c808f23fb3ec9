/**
 * Elements for xterm.js under a policy without inline styles. It writes style elements
 * and `style` attributes, both of which the policy blocks, and has no setting for it. While
 * a terminal is there, the page makes style elements whose text becomes a constructed
 * style sheet, which the policy allows, and elements whose `style` attribute is set as a
 * property. Of what else the page makes nothing changes.
 */
type Make = (name: string, options?: ElementCreationOptions) => HTMLElement;

const own: Make = Reflect.get(Document.prototype, 'createElement');

/** Stands in the page only so that it can be removed. */
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

/** Begins; what it gives ends it, when nobody else is left who needs it. */
export function styledElements(): () => void {
  if (users++ === 0) Object.defineProperty(document, 'createElement', { configurable: true, writable: true, value: make });
  return () => {
    // The page's own one is its prototype's.
    if (--users === 0) Reflect.deleteProperty(document, 'createElement');
  };
}
