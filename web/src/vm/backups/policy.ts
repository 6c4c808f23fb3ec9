/** Backup policies in words. */
import type { BackupPolicy } from '../api';

const capital = (word: string) => word.charAt(0).toUpperCase() + word.slice(1);

export function scheduleText(p: Pick<BackupPolicy, 'schedule_type' | 'time' | 'timezone' | 'weekday' | 'day'>): string {
  const day = { daily: 'Every day', weekly: `Every ${capital(p.weekday)}`, monthly: p.day > 28 ? `Day ${p.day} of each month, or its last` : `Day ${p.day} of each month` }[p.schedule_type];
  return `${day} at ${p.time}, ${p.timezone}`;
}

export function retentionText(p: Pick<BackupPolicy, 'retention_days' | 'keep_last' | 'keep_daily' | 'keep_weekly' | 'keep_monthly'>): string {
  const kept = [p.keep_last && `${p.keep_last} newest`, p.keep_daily && `${p.keep_daily} daily`, p.keep_weekly && `${p.keep_weekly} weekly`, p.keep_monthly && `${p.keep_monthly} monthly`].filter(Boolean);
  const days = p.retention_days ? `for ${p.retention_days} ${p.retention_days === 1 ? 'day' : 'days'}` : '';
  return [kept.join(', '), days].filter(Boolean).join('; ') || 'all of them';
}
