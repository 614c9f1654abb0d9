// Finds the option or the command that a misspelt name most likely means.

/** Maps the names that other libraries use to our options. */
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

/**
 * The most changes that a misspelt name needs. If this is larger, errors suggest unrelated names;
 * if it is smaller, they miss more typing errors.
 */
const MOST_CHANGES = 3

/** Returns which of the `known` names was most likely meant; `undefined` if none is near. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const given = name.toLowerCase()
  const aliases = Object.entries(ELSEWHERE).filter(([, meant]) => known.includes(meant))
  let best: string | undefined
  let least = Number.POSITIVE_INFINITY
  for (const [word, meant] of [...known.map((word) => [word, word] as const), ...aliases]) {
    const candidate = word.toLowerCase()
    const changes = distance(given, candidate)
    // If half of a short word differs, it is another word.
    if (changes > Math.min(MOST_CHANGES, candidate.length / 2)) continue
    // Among equally near names, prefer the one without other letters: `tll` means ttl rather than
    // tls.
    const cost = changes + ([...candidate].every((letter) => given.includes(letter)) ? 0 : 0.5)
    if (cost >= least) continue
    least = cost
    best = meant
  }
  return best
}

/**
 * Returns how many letters to insert, remove, replace, or swap with the next one, to turn `b` into
 * `a`.
 */
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
