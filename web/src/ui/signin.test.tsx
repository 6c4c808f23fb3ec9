import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Accepts, Info, Session } from './session';
import { goToProvider, SignInPage } from './signin';

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

const accepts: Accepts = { password: false, token: 'API key', token_hint: 'Of this node.', single_sign_on: '' };
const info = (more: Partial<Accepts> = {}): Info => ({ service: 'test', title: 'Test', version: '1', signed_in: false, over: false, sign_out: false, accepts: { ...accepts, ...more } });

describe('SignInPage', () => {
  it('asks for a key and for nothing else where a service knows only keys', async () => {
    const signIn = vi.fn().mockRejectedValueOnce(new Error('That key is wrong.')).mockResolvedValue(undefined);
    render(<SignInPage session={{ signIn } as unknown as Session} info={info()} />);
    expect(screen.getAllByRole('button').map((b) => b.textContent)).toEqual(['Sign in']);
    expect(screen.getByText('Of this node.')).toBeInTheDocument();
    const button = screen.getByRole('button', { name: 'Sign in' });
    await userEvent.click(button);
    expect(screen.getByRole('alert')).toHaveTextContent('Paste the API key first.');
    await userEvent.type(screen.getByLabelText('API key'), 'a b');
    await userEvent.click(button);
    expect(screen.getByRole('alert')).toHaveTextContent('This is not a valid API key');
    expect(signIn).not.toHaveBeenCalled();
    await userEvent.clear(screen.getByLabelText('API key'));
    await userEvent.type(screen.getByLabelText('API key'), ' k3y ');
    await userEvent.click(button);
    expect(screen.getByRole('alert')).toHaveTextContent('That key is wrong.');
    await userEvent.click(button);
    expect(signIn).toHaveBeenLastCalledWith({ token: 'k3y' });
  });

  it('offers everything that the service accepts', async () => {
    const signIn = vi.fn().mockResolvedValue(undefined);
    render(<SignInPage session={{ signIn } as unknown as Session} info={info({ password: true, single_sign_on: '/sso' })} />);
    expect(screen.getAllByRole('button').map((b) => b.textContent)).toEqual(['Sign in', 'Use a token', 'Sign in with single sign-on']);
    await userEvent.type(screen.getByLabelText('Username'), 'ann');
    await userEvent.type(screen.getByLabelText('Password'), 'secret');
    await userEvent.click(screen.getByRole('button', { name: 'Sign in' }));
    expect(signIn).toHaveBeenCalledExactlyOnceWith({ username: 'ann', password: 'secret' });
  });

  it('asks for a code in a second step, sends it with the password, and keeps both when it is wrong', async () => {
    const signIn = vi.fn().mockResolvedValueOnce('code').mockRejectedValueOnce(new Error('Invalid two-factor code')).mockResolvedValue('in');
    render(<SignInPage session={{ signIn } as unknown as Session} info={info({ password: true })} />);
    await userEvent.type(screen.getByLabelText('Username'), 'ann');
    await userEvent.type(screen.getByLabelText('Password'), 'secret');
    await userEvent.click(screen.getByRole('button', { name: 'Sign in' }));
    expect(signIn).toHaveBeenLastCalledWith({ username: 'ann', password: 'secret' });
    const code = await screen.findByLabelText('Code');
    expect(code).toHaveFocus();
    expect(screen.queryByLabelText('Password')).toBeNull();
    const button = screen.getByRole('button', { name: 'Sign in' });
    await userEvent.click(button);
    expect(screen.getByRole('alert')).toHaveTextContent('Type the code');
    expect(signIn).toHaveBeenCalledTimes(1);
    await userEvent.type(code, ' 123456 ');
    await userEvent.click(button);
    expect(screen.getByRole('alert')).toHaveTextContent('Invalid two-factor code');
    expect(screen.getByLabelText('Code')).toHaveValue(' 123456 ');
    await userEvent.click(button);
    expect(signIn).toHaveBeenLastCalledWith({ username: 'ann', password: 'secret', code: '123456' });
  });

  it('lets one go back from the code to another account', async () => {
    const signIn = vi.fn().mockResolvedValueOnce('code');
    render(<SignInPage session={{ signIn } as unknown as Session} info={info({ password: true })} />);
    await userEvent.type(screen.getByLabelText('Username'), 'ann');
    await userEvent.type(screen.getByLabelText('Password'), 'secret{Enter}');
    await userEvent.click(await screen.findByRole('button', { name: 'Back' }));
    expect(screen.getByLabelText('Username')).toHaveValue('ann');
    expect(screen.queryByLabelText('Code')).toBeNull();
  });
});
