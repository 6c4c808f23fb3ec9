import { render, screen } from '@testing-library/react';
import { describe, expect, it } from 'vitest';
import { admits, CallerProvider, createAccess } from './access';

const callers = {
  'global admin': { role: 'admin', org_id: '' },
  'global viewer': { role: 'viewer', org_id: '' },
  'org admin': { role: 'admin', org_id: 'acme' },
  'org viewer': { role: 'viewer', org_id: 'acme' },
  user: { role: 'user', org_id: 'acme' },
  agent: { role: 'agent', org_id: '' },
};

describe('admits', () => {
  // The same table as the service's, for the callers that people are.
  it.each([
    ['open', ['global admin', 'global viewer', 'org admin', 'org viewer', 'user', 'agent']],
    ['any', ['global admin', 'global viewer', 'org admin', 'org viewer', 'user', 'agent']],
    ['viewer', ['global admin', 'global viewer', 'org admin', 'org viewer', 'user']],
    ['user', ['global admin', 'org admin', 'user']],
    ['admin', ['global admin', 'org admin']],
    ['ingest', ['global admin', 'org admin']],
    ['global-viewer', ['global admin', 'global viewer']],
    ['global-user', ['global admin']],
    ['global-admin', ['global admin']],
    ['agent', []],
    ['something new', []],
    [undefined, []],
  ])('class %s is for %j', (access, expected) => {
    const found = Object.entries(callers).filter(([, caller]) => admits(access, caller)).map(([name]) => name);
    expect(found).toEqual(expected);
  });
});

describe('Allowed', () => {
  const { Allowed } = createAccess({ RevokeSite: 'admin', ListSites: 'viewer' });
  it('shows what the caller may do, and nothing else', () => {
    render(
      <CallerProvider caller={{ subject: 'v', kind: 'token', role: 'viewer', org_id: '', expires_at: null }}>
        <Allowed operation="ListSites">list</Allowed>
        <Allowed operation="RevokeSite">revoke</Allowed>
      </CallerProvider>,
    );
    expect(screen.getByText('list')).toBeInTheDocument();
    expect(screen.queryByText('revoke')).toBeNull();
  });
});
