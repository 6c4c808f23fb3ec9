/** What to do about an alert, by its kind. */
import type { Alert } from './api';

export const advice: Record<Alert['kind'], string> = {
  site_offline: 'Check the power and the network of the site, and that its agent runs: mainstay agent status. The agent keeps what it has to send.',
  cert_expiring: 'Agents renew their certificates by themselves. See in the log of this one why it does not.',
  route_failing: 'Open the route for the last error, correct the target or its address, and test the route. Deliveries are repeated meanwhile.',
  delivery_blocked: 'The first event in line fails, and the others of its site wait behind it. Correct the target, or disable the route to set the event aside.',
  deadletter_backlog: 'Find out why the target refused the events, then replay them, or delete what nobody needs.',
  ota_failed: 'Open the device for the reason. Correct the artifact, and request the update again.',
  campaign_paused: 'More devices failed than the stage allows. Look at the failed devices, then continue the campaign or abort it.',
  deployment_failed: 'Open the deployment for the reason that the agent gave. Go back to the version before, or correct the image and its settings.',
  policy_violation: 'No enabled policy pack allows the image. Allow it in a pack, or deploy another image.',
  audit_broken: 'Verify the log on its page: it names the entries that do not fit. Compare with a checkpoint before you acknowledge it.',
};
