import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { goToProvider, SignIn } from './signin';

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

describe('SignIn', () => {
  it('asks for a key and for nothing else where a service knows only keys', async () => {
    const check = vi.fn().mockRejectedValueOnce(new Error('That key is wrong.')).mockResolvedValue(undefined);
    const onToken = vi.fn();
    render(<SignIn service="Test" check={check} onToken={onToken} tokenLabel="API key" tokenHint="Held in memory." />);
    expect(screen.getAllByRole('button').map((b) => b.textContent)).toEqual(['Sign in']);
    expect(screen.getByText('Held in memory.')).toBeInTheDocument();
    const signIn = screen.getByRole('button', { name: 'Sign in' });
    await userEvent.click(signIn);
    expect(screen.getByRole('alert')).toHaveTextContent('Paste the API key first.');
    await userEvent.type(screen.getByLabelText('API key'), 'a b');
    await userEvent.click(signIn);
    expect(screen.getByRole('alert')).toHaveTextContent('This is not a valid API key');
    expect(check).not.toHaveBeenCalled();
    await userEvent.clear(screen.getByLabelText('API key'));
    await userEvent.type(screen.getByLabelText('API key'), ' k3y ');
    await userEvent.click(signIn);
    expect(screen.getByRole('alert')).toHaveTextContent('That key is wrong.');
    await userEvent.click(signIn);
    expect(check).toHaveBeenLastCalledWith('k3y');
    expect(onToken).toHaveBeenCalledExactlyOnceWith('k3y');
  });
});
