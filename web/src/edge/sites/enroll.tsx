/**
 * Enrolling a site: creates a token, shows the command to run there, and reports when the site has
 * enrolled.
 */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import { body } from '../../ui/client';
import { CopyBox } from '../../ui/copy';
import { Dialog } from '../../ui/dialog';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { Notice } from '../../ui/notice';
import { shellWord } from '../../ui/shell-word';
import { DateTime } from '../../ui/time';
import { api, schemas, type EnrollmentTokenInput, type NewEnrollmentToken } from '../api';
import { useLive } from '../live';
import { useOrgOptions } from '../org-choice';

export function agentCommand(origin: string, token: string, name: string): string {
  return `mainstay agent --server ${shellWord(origin)} --enrollment-token ${shellWord(token)} --name ${shellWord(name)} --data /var/lib/mainstay-agent`;
}

export const lifetimes = [
  { value: '3600', label: '1 hour' },
  { value: '86400', label: '1 day' },
  { value: '604800', label: '7 days' },
  { value: '2592000', label: '30 days' },
];

export function EnrollDialog({ onClose }: { onClose: () => void }) {
  const [made, setMade] = useState<NewEnrollmentToken>();
  const queries = useQueryClient();
  const orgs = useOrgOptions();
  if (made) return <Waiting token={made} onClose={onClose} />;
  const fields: FieldSpec[] = [
    { name: 'name', label: 'Name of the site', hint: 'The site appears under this name. It can be changed later.', placeholder: 'plant-1' },
    { name: 'ttl_seconds', label: 'The token works for', options: lifetimes, hint: 'Then it is of no use to whoever finds it.', kind: 'choice' },
    ...(orgs.length ? [{ name: 'org_id', label: 'Org', options: [{ value: '', label: 'No org' }, ...orgs], hint: 'Its tokens see the site.' }] : []),
  ];
  return (
    <FormDialog<EnrollmentTokenInput>
      title="Enroll a site"
      schema={schemas.CreateEnrollmentToken}
      fields={fields}
      values={{ ttl_seconds: 3600 }}
      action="Create the token"
      onClose={onClose}
      onSubmit={async (input) => {
        setMade(await body(api.POST('/enrollment-tokens', { body: { ...input, max_uses: 1 } })));
        await queries.invalidateQueries({ queryKey: ['tokens'] });
      }}
    />
  );
}

function Waiting({ token, onClose }: { token: NewEnrollmentToken; onClose: () => void }) {
  const arrived = useArrival(token);
  return (
    <Dialog title={`Enroll ${token.name}`} onClose={onClose} wide once={!arrived}>
      <div className="dialog-body stack">
        <p>Run this at the site, as a user that may write to the data folder:</p>
        <CopyBox label="Agent command" text={agentCommand(location.origin, token.token, token.name)} />
        <p className="muted small">
          The token in it is not shown again. It enrolls one site, until <DateTime at={token.expires_at} />.
        </p>
        <div role="status">
          {arrived ? (
            <Notice tone="ok">
              <strong>{token.name} has appeared.</strong> {arrived.id && <Link href={`/sites/${encodeURIComponent(arrived.id)}`}>Open the site</Link>}
            </Notice>
          ) : (
            <Notice tone="info">Waiting for the site. This changes by itself when its agent has enrolled; once you have copied the command, you may close this and continue.</Notice>
          )}
        </div>
      </div>
      <div className="dialog-foot">
        <button type="button" className="btn btn-primary" onClick={onClose}>
          {arrived ? 'Done' : 'I have copied it'}
        </button>
      </div>
    </Dialog>
  );
}

/**
 * The site that used the token. The stream reports immediately which site it is. The list of tokens
 * shows that the token was used, even if the stream is down.
 */
function useArrival(token: NewEnrollmentToken): { id?: string } | undefined {
  const { activity } = useLive();
  const line = activity?.find((e) => e.action === 'site.enroll' && e.site === token.name && Date.parse(e.time) >= Date.parse(token.created_at));
  const tokens = useQuery({
    queryKey: ['tokens', 'watched', token.id],
    queryFn: ({ signal }) => body(api.GET('/enrollment-tokens', { params: { query: { limit: 1000 } }, signal })),
    refetchInterval: 3_000,
    enabled: !line,
  });
  if (line) return { id: line.site_id };
  return tokens.data?.some((t) => t.id === token.id && t.uses > 0) ? {} : undefined;
}
