/** A schedule as a request: a change replaces all of it. */
import { schemas, type Schedule, type ScheduleSpec } from '../api';

/** What a request may say of a schedule that the API has answered with. */
export function specOf(schedule: Schedule, enabled = schedule.enabled): ScheduleSpec {
  const asked = Object.entries(schedule).filter(([key]) => key in (schemas.UpdateSchedule.properties ?? {}));
  return { ...(Object.fromEntries(asked) as unknown as ScheduleSpec), enabled };
}

/** When the first run is due after a schedule is enabled: at once, unless it has a time to count from. */
export const firstRun = (s: Pick<Schedule, 'first_at'>) => (s.first_at === undefined ? 'at once' : 'at the next of its times');
