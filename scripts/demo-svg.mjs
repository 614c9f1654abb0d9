// Draws a recording of a terminal as an SVG. CSS shows the lines at the times of the recording, in
// a loop; without motion, the picture shows the end. The recording is part of the file.
//
// A recording is { command, lines }, where each line is [ms since the start, text]. Colors are ANSI
// codes in the text.

/** The rows that are visible. Earlier ones scroll away. */
const ROWS = 28
/** The smallest width in columns. A longer line makes the picture wider. */
const COLUMNS = 80
const LINE = 19
const FONT = 13
/** The width of a character in most monospaced fonts. Columns begin at multiples of it. */
const CHARACTER = FONT * 0.6
const MARGIN = 18
/** How long the end stays before the picture begins again, in ms. */
const REST = 10_000

const VIEW = ROWS * LINE
const HEIGHT = VIEW + 2 * MARGIN

/** The classes of the codes that the demo uses. */
const CLASSES = { 1: 'bold', 2: 'dim', 31: 'red', 32: 'green', 33: 'yellow', 35: 'magenta', 36: 'cyan' }
const LIGHT = { page: '#f6f8fa', edge: '#d0d7de', text: '#1f2328', red: '#c93c37', green: '#1a7f37' }
const DARK = { page: '#161b22', edge: '#30363d', text: '#e6edf3', red: '#ff7b72', green: '#56d364' }
Object.assign(LIGHT, { yellow: '#8f5b00', magenta: '#8a3ab9', cyan: '#06718d' })
Object.assign(DARK, { yellow: '#e3b341', magenta: '#d2a8ff', cyan: '#56d4dd' })

const escapeText = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
const variables = (colours) =>
  Object.entries(colours)
    .map(([name, value]) => `--${name}:${value}`)
    .join(';')
const short = (number) => String(Number(number.toFixed(3)))

/**
 * Returns the parts of a line that have one style and no wide gap, as { column, text, classes }.
 */
function partsOf(line) {
  const parts = []
  let classes = []
  let column = 0
  const [first, ...rest] = line.split('\x1b')
  for (const piece of [`[0m${first}`, ...rest]) {
    const [, codes, text] = /^\[([\d;]*)m(.*)$/.exec(piece)
    for (const code of codes.split(';').map(Number))
      classes = code === 0 ? [] : [...classes, CLASSES[code] ?? []].flat()
    for (const { 0: words, index } of text.matchAll(/\S+(?: \S+)*/g)) {
      parts.push({ column: column + index, text: words, classes })
    }
    column += text.length
  }
  return parts
}

const widthOf = (parts) => Math.max(0, ...parts.map(({ column, text }) => column + text.length))

function drawLine(parts, row) {
  const spans = parts.map(({ column, text, classes }) => {
    const style = classes.length ? ` class="${classes.join(' ')}"` : ''
    return `<tspan x="${short(column * CHARACTER)}"${style}>${escapeText(text)}</tspan>`
  })
  return `<text y="${row * LINE + FONT}">${spans.join('')}</text>`
}

/** Returns the steps of the picture as [ms, number of visible lines]. */
function stepsOf(lines) {
  const steps = new Map([[0, 1]])
  for (const [index, [at]] of lines.entries()) steps.set(at, index + 2)
  return [...steps]
}

const keyframes = (name, steps, end, distance) =>
  `@keyframes ${name}{${steps
    .map(([at, count]) => `${short((at / end) * 100)}%{transform:translateY(${distance(count)}px)}`)
    .join('')}}`

const scrolled = (count) => -Math.max(0, count - ROWS) * LINE

/** Returns the SVG of a recording. */
export function draw(recording) {
  const { command, lines } = recording
  const all = [`\x1b[2m$\x1b[0m \x1b[1m${command}\x1b[0m`, ...lines.map(([, text]) => text)].map(partsOf)
  // Add one column, because some fonts are wider.
  const inner = Math.ceil(Math.max(COLUMNS, ...all.map((parts) => widthOf(parts) + 1)) * CHARACTER)
  const width = inner + 2 * MARGIN
  const end = (lines.at(-1)?.[0] ?? 0) + REST
  const steps = stepsOf(lines)
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${HEIGHT}" width="${width}" height="${HEIGHT}" role="img" aria-labelledby="title">
<title id="title">The output of ${escapeText(command)}</title>
<metadata id="recording">${escapeText(JSON.stringify(recording))}</metadata>
<style>
svg{${variables(LIGHT)}}
@media (prefers-color-scheme:dark){svg{${variables(DARK)}}}
text{font:${FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;fill:var(--text)}
.page,.cover{fill:var(--page)}
.page{stroke:var(--edge)}
.bold{font-weight:bold}
.dim{opacity:.7}
${['red', 'green', 'yellow', 'magenta', 'cyan'].map((name) => `.${name}{fill:var(--${name})}`).join('')}
.lines{transform:translateY(${scrolled(all.length)}px)}
.cover{transform:translateY(${all.length * LINE}px)}
@media (prefers-reduced-motion:no-preference){
.lines{animation:scroll ${end}ms step-end infinite}
.cover{animation:reveal ${end}ms step-end infinite}
${keyframes('scroll', steps, end, scrolled)}
${keyframes('reveal', steps, end, (count) => count * LINE)}
}
</style>
<rect class="page" x=".5" y=".5" width="${width - 1}" height="${HEIGHT - 1}" rx="8"/>
<clipPath id="view"><rect class="view" x="${MARGIN}" y="${MARGIN}" width="${inner}" height="${VIEW}"/></clipPath>
<g clip-path="url(#view)"><g transform="translate(${MARGIN} ${MARGIN})"><g class="lines">
${all.map(drawLine).join('\n')}
<rect class="cover" width="100%" height="${all.length * LINE}"/>
</g></g></g>
</svg>
`
}

/** Returns the recording in an SVG that draw() made. */
export function recordingIn(svg) {
  const [, text] = /<metadata id="recording">(.*)<\/metadata>/.exec(svg)
  return JSON.parse(text.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&'))
}
