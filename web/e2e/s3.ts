/** An S3 service with one bucket, in memory: as much of it as backups of the storage gateway use. Nobody is asked for keys. */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Store {
  url: string;
  bucket: string;
  /** The objects by their keys. */
  objects: Map<string, Buffer>;
  stop: () => void;
}

/** The content of a body that was signed chunk by chunk: each has its length in hexadecimal digits before it. */
function unchunked(body: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const end = body.indexOf('\r\n', at);
    const length = Number.parseInt(body.subarray(at, end).toString(), 16);
    if (!length) return Buffer.concat(parts);
    parts.push(body.subarray(end + 2, end + 2 + length));
    at = end + 2 + length + 2;
  }
}

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

export async function startStore(bucket = 'offsite'): Promise<Store> {
  const objects = new Map<string, Buffer>();
  const xml = (response: ServerResponse, status: number, text: string) => response.writeHead(status, { 'Content-Type': 'application/xml' }).end(`<?xml version="1.0"?>${text}`);
  const refuse = (response: ServerResponse, status: number, code: string) => xml(response, status, `<Error><Code>${code}</Code><Message>${code}</Message></Error>`);
  const etag = (content: Buffer) => `"${createHash('md5').update(content).digest('hex')}"`;
  const modified = new Date().toISOString();

  const ofBucket = (query: URLSearchParams, response: ServerResponse) => {
    if (query.has('location')) return xml(response, 200, '<LocationConstraint/>');
    if (query.has('versioning')) return xml(response, 200, '<VersioningConfiguration/>');
    if (query.has('lifecycle')) return refuse(response, 404, 'NoSuchLifecycleConfiguration');
    const prefix = query.get('prefix') ?? '';
    const delimiter = query.get('delimiter') ?? '';
    const found = [...objects.keys()].filter((k) => k.startsWith(prefix)).sort();
    const folderOf = (key: string) => (delimiter && key.indexOf(delimiter, prefix.length) >= 0 ? key.slice(0, key.indexOf(delimiter, prefix.length) + 1) : '');
    const folders = [...new Set(found.map(folderOf).filter(Boolean))];
    const contents = found.filter((k) => !folderOf(k)).map((k) => `<Contents><Key>${escaped(k)}</Key><Size>${objects.get(k)?.length ?? 0}</Size><LastModified>${modified}</LastModified><ETag>"x"</ETag></Contents>`);
    return xml(response, 200, `<ListBucketResult><Name>${bucket}</Name><IsTruncated>false</IsTruncated>${contents.join('')}${folders.map((f) => `<CommonPrefixes><Prefix>${escaped(f)}</Prefix></CommonPrefixes>`).join('')}</ListBucketResult>`);
  };

  const ofObject = (key: string, request: IncomingMessage, body: Buffer, response: ServerResponse) => {
    const there = objects.get(key);
    if (request.method === 'PUT') {
      if (there && request.headers['if-none-match'] === '*') return refuse(response, 412, 'PreconditionFailed');
      const content = String(request.headers['x-amz-content-sha256']).startsWith('STREAMING') ? unchunked(body) : body;
      objects.set(key, content);
      return response.writeHead(200, { ETag: etag(content) }).end();
    }
    if (request.method === 'DELETE') {
      objects.delete(key);
      return response.writeHead(204).end();
    }
    if (!there) return refuse(response, 404, 'NoSuchKey');
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    const part = from === undefined ? there : there.subarray(Number(from), Number(to) + 1);
    response.writeHead(from === undefined ? 200 : 206, { 'Content-Length': part.length, 'Last-Modified': new Date(modified).toUTCString(), ETag: etag(there) });
    return response.end(request.method === 'HEAD' ? undefined : part);
  };

  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (c: Buffer) => chunks.push(c));
    request.on('end', () => {
      const { pathname, searchParams } = new URL(request.url ?? '/', 'http://store');
      const [, name, ...key] = decodeURIComponent(pathname).split('/');
      if (name !== bucket) refuse(response, 404, 'NoSuchBucket');
      else if (key.join('/') === '') ofBucket(searchParams, response);
      else ofObject(key.join('/'), request, Buffer.concat(chunks), response);
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    bucket,
    objects,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
