interface Disposable {
  [Symbol.asyncDispose]: () => Promise<void>
}

/** Makes a class work with `await using`, where that exists: Node 20 before 20.5 has no such symbol. */
export function defineDispose<T extends Disposable>(prototype: T, dispose: (self: T) => Promise<unknown>): void {
  const symbol: symbol | undefined = Symbol.asyncDispose
  if (symbol === undefined) return
  const value = async function (this: T): Promise<void> {
    await dispose(this)
  }
  Object.defineProperty(prototype, symbol, { value, writable: true, configurable: true })
}
