// Makes a table from figures: medians over the rounds, ratios to the best peer, and the budgets.
// tables.mjs has the tables.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** Adds to each row the median of each metric over its rounds. */
export function summarize(rows, { metrics }) {
  return rows
    .filter(({ rounds }) => rounds.length > 0)
    .map((row) => ({
      ...row,
      figures: Object.fromEntries(
        metrics.map(({ key }) => [key, median(row.rounds.map((round) => round[key] ?? Number.NaN))]),
      ),
    }))
}

/** Returns the peer with the best median for one metric, or undefined if no peer was measured. */
function bestPeer(rows, { key, best }) {
  const peers = rows.filter(({ kind }) => kind === 'peer')
  const value = best(...peers.map(({ figures }) => figures[key]).filter(Number.isFinite))
  return peers.find(({ figures }) => figures[key] === value)
}

/**
 * Returns the row with which the rows of a table are compared for one metric, or undefined if it
 * was not measured.
 */
function reference(rows, metric, against) {
  return against === 'ours' ? rows.find(({ kind }) => kind === 'ours') : bestPeer(rows, metric)
}

/**
 * Compares `row` with `other`: the median of the rounds' ratios, in which the machine's drift
 * cancels.
 */
function ratio(row, other, key) {
  const rounds = row.rounds.map((round, i) => round[key] / other.rounds[i]?.[key]).filter(Number.isFinite)
  return rounds.length ? median(rounds) : row.figures[key] / other.figures[key]
}

/** Returns which budgets hold, of those whose rows were measured. */
export function judge(rows, { metrics, budgets }) {
  return budgets.flatMap((budget) => {
    const ours = rows.find((row) => (budget.row ? row.name === budget.row : row.kind === 'ours'))
    const metric = metrics.find(({ key }) => key === budget.key)
    const peer = budget.absolute ? undefined : bestPeer(rows, metric)
    if (!ours || !(budget.absolute || peer)) return []
    const measured = peer ? ratio(ours, peer, budget.key) : ours.figures[budget.key]
    const kept = budget.atMost ? measured <= budget.limit : measured >= budget.limit
    return [{ ...budget, peer: peer?.name ?? '', measured, kept }]
  })
}

const KINDS = {
  ours: 'leasehold',
  peer: 'other lock libraries',
  raw: 'the same two commands without a lock library: no lock through that client can be faster',
  limit: 'a bare socket: the limit of the network and the server',
  heard: 'leasehold with listeners',
  info: 'leasehold without a server, for information',
}

const number = (value, digits) =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits }).replaceAll(',', ' ')

const NAME = 26
const VALUE = 9
const RATIO = 8

/** Returns the whole report as text. */
export function render(rows, budgets, { groups, metrics, about, against, note }, { cpu, machine }) {
  const width = (metric) => VALUE + (metric.share ? 1 : RATIO)
  let column = 0
  const headings = groups.map(([title, count]) => {
    const room = metrics.slice(column, column + count).reduce((sum, metric) => sum + width(metric), 0)
    column += count
    return title.padStart((room + title.length) >> 1).padEnd(room)
  })
  const title = (metric) => metric.title.padStart(VALUE).padEnd(width(metric))
  const lines = [
    machine,
    about({ cpu }),
    '',
    ' '.repeat(NAME) + headings.join(''),
    ' '.repeat(NAME) + metrics.map(title).join(''),
  ]

  for (const [kind, title] of Object.entries(KINDS)) {
    const ofKind = rows.filter((row) => row.kind === kind)
    if (!ofKind.length) continue
    lines.push('', title)
    for (const row of ofKind) {
      const cells = metrics.map((metric) => {
        const other = metric.share ? undefined : reference(rows, metric, against)
        const share = other ? ` ×${number(ratio(row, other, metric.key), 2)}` : ''
        const figure = row.figures[metric.key]
        const text = Number.isFinite(figure) ? number(figure, metric.digits) : '–'
        return (text.padStart(VALUE) + share).padEnd(width(metric))
      })
      lines.push(`  ${row.name}`.padEnd(NAME) + cells.join(''))
    }
  }

  lines.push('', `× is the ratio to ${against === 'ours' ? 'leasehold' : 'the best other library'}.`)
  if (note) {
    lines.push('', 'How each was set:')
    for (const row of rows) lines.push(`  ${row.name}`.padEnd(NAME) + note(row))
  }
  if (budgets.length) {
    lines.push('', 'Budgets, as ratios to the best other library where one is named:')
    for (const { what, peer, measured, limit, atMost, aim, kept } of budgets) {
      const bound = `${atMost ? '≤' : '≥'} ${limit}${aim ? `, aim ${aim}` : ''}`
      lines.push(
        `  ${kept ? 'yes' : 'NO '}  ${what.padEnd(44)}${number(measured, 2).padStart(7)}   ${bound.padEnd(14)} ${peer}`.trimEnd(),
      )
    }
  }
  return lines.join('\n')
}
