/**
 * Downloads a file with an authorized request, since a link cannot carry the console's header. If the browser
 * can write to files directly, the size does not matter. Otherwise the file is first held in
 * memory.
 */
import { errorFrom, unreachable } from './problem';
import { consoleHeaders } from './session';

type Picker = (options: { suggestedName: string }) => Promise<{ createWritable: () => Promise<WritableStream<Uint8Array>> }>;

export async function download(path: string, name: string): Promise<void> {
  const pick = (window as unknown as { showSaveFilePicker?: Picker }).showSaveFilePicker;
  let file;
  try {
    file = await pick?.call(window, { suggestedName: name });
  } catch (e) {
    if (e instanceof DOMException && e.name === 'AbortError') return; // the user cancelled the dialog
    throw e;
  }
  const response = await fetch(path, { headers: consoleHeaders }).catch(() => {
    throw unreachable();
  });
  if (!response.ok || !response.body) throw await errorFrom(response);
  if (file) {
    await response.body.pipeTo(await file.createWritable());
    return;
  }
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
