// Reads the result of a test run from a report in JUnit's XML, the one format that the runners of
// Node, Bun and Deno all write.

const CASE = /<testcase((?:\s+[\w:-]+="[^"]*")*)\s*(?:\/>|>([\s\S]*?)<\/testcase>)/g
const ENTITIES = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' }

const plain = (text) =>
  text.replace(/&(?:(lt|gt|quot|apos|amp)|#(x?)([0-9a-f]+));/gi, (_, name, hex, code) =>
    name ? ENTITIES[name.toLowerCase()] : String.fromCodePoint(Number.parseInt(code, hex ? 16 : 10)),
  )

/**
 * Returns the numbers of passed and skipped tests, and the names of those that failed: { passed,
 * failed, skipped }.
 */
export function readReport(xml) {
  const cases = [...xml.matchAll(CASE)].map(([, attributes, body = '']) => ({
    name: plain(/\bname="([^"]*)"/.exec(attributes)?.[1] ?? ''),
    body,
  }))
  // Deno writes a suite as one more test before its tests: "suite", "suite > test". It fails with
  // them.
  const isSuite = ({ name }) => cases.some((other) => other.name.startsWith(`${name} > `))
  const result = { passed: 0, failed: [], skipped: 0 }
  for (const each of cases) {
    const hasFailed = /<(failure|error)\b/.test(each.body)
    if (isSuite(each)) continue
    if (hasFailed) result.failed.push(each.name)
    else if (/<skipped\b/.test(each.body)) result.skipped++
    else result.passed++
  }
  return result
}
