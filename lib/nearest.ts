// What somebody meant who misspelt a name: of an option, or of a command.

/** What other libraries call an option of ours. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  url: 'store',
  uri: 'store',
  redis: 'store',
  host: 'store',
  auth: 'password',
  pass: 'password',
  user: 'username',
  timeout: 'wait',
  duration: 'ttl',
  lease: 'ttl',
  expiry: 'ttl',
  retries: 'retry',
  retrycount: 'retry',
  retrydelay: 'retry',
  interval: 'retryInterval',
  resource: 'key',
  handler: 'startWork',
  onstart: 'startWork',
  run: 'startWork',
  work: 'startWork',
  onstop: 'stopWork',
}

/** More changes than this make another word of it. */
const MOST_CHANGES = 3

/** Which of the `known` names was most likely meant. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const given = name.toLowerCase()
  const aliases = Object.entries(ELSEWHERE).filter(([, meant]) => known.includes(meant))
  let best: string | undefined
  let least = Number.POSITIVE_INFINITY
  for (const [word, meant] of [...known.map((word) => [word, word] as const), ...aliases]) {
    const candidate = word.toLowerCase()
    const changes = distance(given, candidate)
    // Of a short word, half of which is another, nothing is left.
    if (changes > Math.min(MOST_CHANGES, candidate.length / 2)) continue
    // Of two as near, the one with no other letters: `tll` is rather a ttl than a tls.
    const cost = changes + ([...candidate].every((letter) => given.includes(letter)) ? 0 : 0.5)
    if (cost >= least) continue
    least = cost
    best = meant
  }
  return best
}

/** How many letters have to be put in, left out, replaced or swapped with the next to make `a` of `b`. */
function distance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > MOST_CHANGES) return Number.POSITIVE_INFINITY
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  const at = (i: number, j: number) => rows[i]?.[j] ?? 0
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    rows.push(row)
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      row[j] = Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (same ? 0 : 1))
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (swapped) row[j] = Math.min(at(i, j), at(i - 2, j - 2) + 1)
    }
  }
  return at(a.length, b.length)
}
