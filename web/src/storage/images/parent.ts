/** The snapshot that an image depends on, which the API writes as POOL/IMAGE@SNAP. None of the names has a slash or an at sign. */
export function parentOf(text: string): { pool: string; image: string; snapshot: string } | undefined {
  const [, pool, image, snapshot] = /^([^/@]+)\/([^/@]+)@([^/@]+)$/.exec(text) ?? [];
  return pool && image && snapshot ? { pool, image, snapshot } : undefined;
}
