// What the two tables show, and which figures have a budget. `best` says which way a figure is better; `share` is a
// figure that is compared with nothing.

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

export const tables = [uncontended, contended]
