// The columns of the tables, and the figures that have a budget. `best` says whether a smaller or a
// larger figure is better; a figure with `share` is compared with no other.

export const uncontended = {
  name: 'uncontended',
  program: 'measure.mjs',
  about: ({ cpu }) => `CPU is ${cpu}, per acquire and release.`,
  groups: [
    ['one acquire and release at a time', 3],
    ['256 at a time', 2],
  ],
  metrics: [
    { key: 'p50', title: 'p50 µs', best: Math.min, digits: 0 },
    { key: 'p99', title: 'p99 µs', best: Math.min, digits: 0 },
    { key: 'cpuOne', title: 'CPU µs', best: Math.min, digits: 1 },
    { key: 'rate', title: 'pairs/s', best: Math.max, digits: 0 },
    { key: 'cpuMany', title: 'CPU µs', best: Math.min, digits: 2 },
  ],
  budgets: [
    { key: 'p50', what: 'one at a time, p50', limit: 1.1, atMost: true, aim: 1 },
    { key: 'p99', what: 'one at a time, p99', limit: 1.5, atMost: true },
    { key: 'cpuOne', what: 'one at a time, CPU of the JS thread', limit: 0.5, atMost: true },
    { key: 'rate', what: '256 at a time, pairs/s', limit: 2.5, atMost: false },
    { key: 'cpuMany', what: '256 at a time, CPU of the JS thread', limit: 0.25, atMost: true },
  ],
}

export const contended = {
  name: 'contended',
  program: 'waiting.mjs',
  about: () =>
    'Spread: the fewest turns of a contender (a process, in 4 × 4) ÷ the most. Commands: what clients send to the server for each turn.',
  groups: [
    ['hand-over to another process', 3],
    ['16 in one process', 2],
    ['4 processes of 4', 2],
    ['64 on one key', 3],
  ],
  metrics: [
    { key: 'handOver50', title: 'p50 ms', best: Math.min, digits: 2 },
    { key: 'handOver99', title: 'p99 ms', best: Math.min, digits: 2 },
    { key: 'handOverMax', title: 'max ms', best: Math.min, digits: 1 },
    { key: 'oneRate', title: 'turns/s', best: Math.max, digits: 0 },
    { key: 'oneSpread', title: 'spread', best: Math.max, digits: 2, share: true },
    { key: 'fourRate', title: 'turns/s', best: Math.max, digits: 0 },
    { key: 'fourShares', title: 'spread', best: Math.max, digits: 2, share: true },
    { key: 'manyRate', title: 'turns/s', best: Math.max, digits: 0 },
    { key: 'manySpread', title: 'spread', best: Math.max, digits: 2, share: true },
    { key: 'manyCommands', title: 'commands', best: Math.min, digits: 2, share: true },
  ],
  budgets: [
    { key: 'handOver50', what: 'hand-over to another process, p50 in ms', limit: 0.3, atMost: true, absolute: true },
    { key: 'oneRate', what: '16 in one process, turns/s', limit: 5, atMost: false },
    { key: 'oneSpread', what: '16 in one process, spread', limit: 0.9, atMost: false, absolute: true },
    { key: 'fourRate', what: '4 processes of 4, turns/s', limit: 1.5, atMost: false },
    {
      key: 'fourShares',
      what: '4 processes of 4, spread of the processes',
      limit: 0.67,
      atMost: false,
      absolute: true,
    },
    {
      key: 'handOver50',
      row: 'leasehold, sqlite:',
      what: 'hand-over on SQLite, p50 in ms',
      limit: 10,
      atMost: true,
      absolute: true,
    },
  ],
}

/**
 * Returns the settings of a row's library, whether time ended before all pairs were done, and what
 * failed.
 */
function votingNote({ setting, rounds }) {
  const cut = rounds.flatMap(({ frozen }) => frozen).filter(({ cutShort }) => cutShort)
  const fewest = Math.min(...cut.map(({ pairs }) => pairs))
  const failures = rounds.flatMap((round) => round.failures)
  return [
    setting,
    ...(cut.length ? [`with nodes frozen, there was time for ${fewest} pairs only`] : []),
    ...(failures.length ? [`failed ${failures.length} times, first with: ${failures[0]}`] : []),
  ].join('; ')
}

export const quorum = {
  name: 'quorum',
  program: 'voting.mjs',
  /** How many masters it needs, in addition to the one server of all tables. */
  masters: 5,
  against: 'ours',
  about: ({ cpu }) =>
    `Five masters; a frozen one (SIGSTOP) keeps its connections and answers nothing. CPU is ${cpu}, per acquire and release.\n` +
    '“Adds” is by how much a figure is above the same process’ with all masters up. It is measured from the moment of freezing.',
  groups: [
    ['one at a time, all up', 4],
    ['one frozen adds', 4],
    ['two frozen add', 4],
    ['64 at a time', 2],
  ],
  metrics: [
    { key: 'acquire50', title: 'p50 µs', best: Math.min, digits: 0 },
    { key: 'acquire99', title: 'p99 µs', best: Math.min, digits: 0 },
    { key: 'pair50', title: 'pair µs', best: Math.min, digits: 0 },
    { key: 'cpu', title: 'CPU µs', best: Math.min, digits: 1 },
    { key: 'adds1', title: 'p50 µs', best: Math.min, digits: 0, share: true },
    { key: 'addsTail1', title: 'p99 µs', best: Math.min, digits: 0, share: true },
    { key: 'addsPair1', title: 'pair µs', best: Math.min, digits: 0, share: true },
    { key: 'addsCpu1', title: 'CPU µs', best: Math.min, digits: 1, share: true },
    { key: 'adds2', title: 'p50 µs', best: Math.min, digits: 0, share: true },
    { key: 'addsTail2', title: 'p99 µs', best: Math.min, digits: 0, share: true },
    { key: 'addsPair2', title: 'pair µs', best: Math.min, digits: 0, share: true },
    { key: 'addsCpu2', title: 'CPU µs', best: Math.min, digits: 1, share: true },
    { key: 'rate', title: 'pairs/s', best: Math.max, digits: 0 },
    { key: 'cpuMany', title: 'CPU µs', best: Math.min, digits: 2 },
  ],
  note: votingNote,
  budgets: [
    {
      key: 'adds1',
      what: 'one frozen adds to acquire, p50 in µs',
      limit: 1000,
      atMost: true,
      absolute: true,
    },
    { key: 'adds2', what: 'two frozen add to acquire, p50 in µs', limit: 1000, atMost: true, absolute: true },
  ],
}

export const seen = {
  name: 'seen',
  program: 'measure.mjs',
  against: 'ours',
  about: ({ cpu }) => `The cost of listeners. CPU is ${cpu}, per acquire and release.`,
  groups: uncontended.groups,
  metrics: uncontended.metrics,
  budgets: [],
}

export const tables = [uncontended, contended, quorum, seen]
