/** The choice of a site, above lists and in forms. */
import { Choice } from '../ui/table';
import { useSites } from './api';

/** A select that limits a list to one site. The API applies the filter. */
export function SiteChoice({ value, onChange }: { value: string; onChange: (id: string) => void }) {
  return <Choice label="Site" value={value} options={[{ value: '', label: 'All sites' }, ...useSiteOptions()]} onChange={onChange} />;
}

/** The sites as options of a form's select, without revoked ones, which accept no requests. */
export function useSiteOptions(): { value: string; label: string }[] {
  return useSites()
    .sites.filter((s) => s.status !== 'revoked')
    .map((s) => ({ value: s.id, label: s.name }))
    .sort((a, b) => a.label.localeCompare(b.label, 'en', { numeric: true }));
}
