// Prints events as they happen: one line per event, one column and color per process.

const WIDTH = 22
const COLOURS = [36, 33, 35]

export class Timeline {
  #out
  #names
  #coloured
  #began = 0

  /** Prints in colors if `out` is a terminal, unless NO_COLOR forbids them. */
  constructor(out, names) {
    this.#out = out
    this.#names = names
    this.#coloured = Boolean(out.isTTY) && !process.env.NO_COLOR
  }

  #paint(codes, text) {
    return this.#coloured ? `\x1b[${codes}m${text}\x1b[0m` : text
  }

  /** Prints a line across all columns. */
  say(text = '', bold = false) {
    this.#out.write(`${bold ? this.#paint('1', text) : text}\n`)
  }

  good(text) {
    this.say(this.#paint('1;32', text))
  }

  bad(text) {
    this.say(this.#paint('1;31', text))
  }

  /** Prints the names of the columns. Times are counted from `at`. */
  begin(at) {
    this.#began = at
    const cells = this.#names.map((name, i) => this.#paint(`1;${COLOURS[i]}`, name.padEnd(WIDTH)))
    this.say(`${' '.repeat(10)}${cells.join('')}`.trimEnd())
  }

  /** Prints what `name` did at `at` ms. */
  event(at, name, text, bold = false) {
    const column = this.#names.indexOf(name)
    const time = `${((at - this.#began) / 1000).toFixed(2).padStart(6)} s`
    const cell = this.#paint(`${bold ? '1;' : ''}${COLOURS[column]}`, text)
    this.say(`${this.#paint('2', time)}  ${' '.repeat(WIDTH * column)}${cell}`)
  }
}
