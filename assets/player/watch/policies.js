// Which settings each policy takes, as the server tells them. Knows no form.

/** The settings that only some policies take; every policy takes the others. @param {Policy[]} policies */
export const optional = (policies) => [...new Set(policies.flatMap((p) => p.knobs))];

/** Whether a setting means something under a policy. @param {Policy[]} policies @param {string} name @param {string} knob */
export function takes(policies, name, knob) {
  const policy = policies.find((p) => p.name === name);
  return Boolean(policy && policy.knobs.includes(knob)) || !optional(policies).includes(knob);
}
