/** The choice of an org, for callers who may see orgs. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../ui/client';
import { api, pageLimit, useMay } from './api';

export function useOrgOptions(): { value: string; label: string }[] {
  const allowed = useMay()('ListOrgs');
  const { data = [] } = useQuery({
    queryKey: ['orgs', 'names'],
    queryFn: ({ signal }) => body(api.GET('/orgs', { params: { query: { limit: pageLimit } }, signal })),
    staleTime: 30_000,
    enabled: allowed,
  });
  return data.map((o) => ({ value: o.id, label: o.name }));
}
