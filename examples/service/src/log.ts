// Writes the log to stdout: one line of JSON for each event.

export type Fields = Readonly<Record<string, unknown>>
type Write = (message: string, fields?: Fields) => void

export interface Log {
  readonly info: Write
  readonly warn: Write
  readonly error: Write
}

/** Returns the parts of an error. JSON would show `{}`. */
function plain(_key: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value
  const { name, message, stack, cause } = value
  const errors = value instanceof AggregateError ? value.errors : undefined
  return { ...value, name, message, stack, cause, errors }
}

/** Creates a log whose lines all have the fields `always`. */
export function createLog(always: Fields = {}): Log {
  const at =
    (level: string): Write =>
    (message, fields) => {
      const line = { time: new Date().toISOString(), level, message, ...always, ...fields }
      process.stdout.write(`${JSON.stringify(line, plain)}\n`)
    }
  return { info: at('info'), warn: at('warn'), error: at('error') }
}
