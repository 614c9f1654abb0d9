// From figures to a table: medians over the rounds, ratios to the best peer, and the budgets.

/** What is measured of a pair. `best` says which way is better. */
export const METRICS = [
  { key: 'p50', title: 'p50 µs', best: Math.min, digits: 0 },
  { key: 'p99', title: 'p99 µs', best: Math.min, digits: 0 },
  { key: 'cpuOne', title: 'CPU µs', best: Math.min, digits: 1 },
  { key: 'rate', title: 'pairs/s', best: Math.max, digits: 0 },
  { key: 'cpuMany', title: 'CPU µs', best: Math.min, digits: 2 },
]

/** The uncontended budgets: the ratio of leasehold to the best peer must not be above, or below, `limit`. */
const BUDGETS = [
  { key: 'p50', what: 'one at a time, p50', limit: 1.1, atMost: true, aim: 1 },
  { key: 'p99', what: 'one at a time, p99', limit: 1.5, atMost: true },
  { key: 'cpuOne', what: 'one at a time, CPU of the JS thread', limit: 0.5, atMost: true },
  { key: 'rate', what: '256 at a time, pairs/s', limit: 2.5, atMost: false },
  { key: 'cpuMany', what: '256 at a time, CPU of the JS thread', limit: 0.25, atMost: true },
]

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** Adds to each row the median of each metric over its rounds. */
export function summarize(rows) {
  return rows
    .filter(({ rounds }) => rounds.length > 0)
    .map((row) => ({
      ...row,
      figures: Object.fromEntries(METRICS.map(({ key }) => [key, median(row.rounds.map((round) => round[key]))])),
    }))
}

/** The peer with the best median, for one metric; undefined if no peer was measured. */
function bestPeer(rows, { key, best }) {
  const peers = rows.filter(({ kind }) => kind === 'peer')
  const value = best(...peers.map(({ figures }) => figures[key]))
  return peers.find(({ figures }) => figures[key] === value)
}

/** How `row` compares with `other`: the median of the rounds' ratios, in which the machine's drift cancels. */
function ratio(row, other, key) {
  const rounds = row.rounds.map((round, i) => round[key] / other.rounds[i]?.[key]).filter(Number.isFinite)
  return rounds.length ? median(rounds) : row.figures[key] / other.figures[key]
}

/** Which budgets hold. Empty if leasehold or all peers were left out. */
export function judge(rows) {
  const ours = rows.find(({ kind }) => kind === 'ours')
  if (!ours || !rows.some(({ kind }) => kind === 'peer')) return []
  return BUDGETS.map((budget) => {
    const peer = bestPeer(
      rows,
      METRICS.find(({ key }) => key === budget.key),
    )
    const measured = ratio(ours, peer, budget.key)
    return {
      what: budget.what,
      peer: peer.name,
      ratio: measured,
      limit: budget.limit,
      atMost: budget.atMost,
      aim: budget.aim,
      kept: budget.atMost ? measured <= budget.limit : measured >= budget.limit,
    }
  })
}

const KINDS = {
  ours: 'leasehold',
  peer: 'other lock libraries',
  raw: 'the same two commands without a lock library: no lock through that client can be quicker',
  limit: 'a bare socket: what the network and the server leave possible',
  info: 'leasehold without a server, for information',
}

const number = (value, digits) =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits }).replaceAll(',', ' ')

const NAME = 26
const VALUE = 9
const RATIO = 8

/** The whole report, as text. */
export function render(rows, budgets, { cpu, machine }) {
  const group = (title, columns) => title.padStart(columns * (VALUE + RATIO) - RATIO) + ' '.repeat(RATIO)
  const lines = [
    machine,
    `CPU is ${cpu}, per acquire and release.`,
    '',
    ' '.repeat(NAME) + group('one acquire and release at a time', 3) + group('256 at a time', 2),
    ' '.repeat(NAME) + METRICS.map(({ title }) => title.padStart(VALUE) + ' '.repeat(RATIO)).join(''),
  ]

  for (const [kind, title] of Object.entries(KINDS)) {
    const ofKind = rows.filter((row) => row.kind === kind)
    if (!ofKind.length) continue
    lines.push('', title)
    for (const row of ofKind) {
      const cells = METRICS.map((metric) => {
        const peer = bestPeer(rows, metric)
        const share = peer ? ` ×${number(ratio(row, peer, metric.key), 2)}` : ''
        return number(row.figures[metric.key], metric.digits).padStart(VALUE) + share.padEnd(RATIO)
      })
      lines.push(`  ${row.name}`.padEnd(NAME) + cells.join(''))
    }
  }

  lines.push('', '× is the ratio to the best other library.')
  if (budgets.length) {
    lines.push('', 'Budgets, as ratios to the best other library:')
    for (const { what, peer, ratio: measured, limit, atMost, aim, kept } of budgets) {
      const bound = `${atMost ? '≤' : '≥'} ${limit}${aim ? `, aim ${aim}` : ''}`
      lines.push(
        `  ${kept ? 'yes' : 'NO '}  ${what.padEnd(38)}${number(measured, 2).padStart(7)}   ${bound.padEnd(14)} ${peer}`,
      )
    }
  }
  return lines.join('\n')
}
