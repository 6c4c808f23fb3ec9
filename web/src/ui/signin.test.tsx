import { afterEach, describe, expect, it, vi } from 'vitest';
import { goToProvider } from './signin';

describe('goToProvider', () => {
  afterEach(() => vi.restoreAllMocks());

  it('goes on when the service redirects', async () => {
    vi.spyOn(globalThis, 'fetch').mockResolvedValue({ type: 'opaqueredirect' } as Response);
    const go = vi.fn();
    await goToProvider('/api/v1/auth/oidc/login', go);
    expect(go).toHaveBeenCalledWith('/api/v1/auth/oidc/login');
  });

  it('stays, and says what the service says, when it does not', async () => {
    vi.spyOn(globalThis, 'fetch').mockResolvedValue(new Response('{"error":{"code":"oidc_not_configured","message":"not set up","request_id":"r"}}', { status: 503 }));
    const go = vi.fn();
    await expect(goToProvider('/x', go)).rejects.toMatchObject({ code: 'oidc_not_configured' });
    expect(go).not.toHaveBeenCalled();
  });
});
