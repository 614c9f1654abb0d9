import { ignore } from './deferred'

interface Disposable {
  [Symbol.asyncDispose]: () => Promise<void>
}

/**
 * Makes a class work with `await using`, where that exists: Node 20 before 20.5 has no such symbol.
 */
export function defineDispose<T extends Disposable>(prototype: T, dispose: (self: T) => Promise<unknown>): void {
  const symbol: symbol | undefined = Symbol.asyncDispose
  if (symbol === undefined) return
  const value = async function (this: T): Promise<void> {
    await dispose(this)
  }
  Object.defineProperty(prototype, symbol, { value, writable: true, configurable: true })
  refuseUsing(prototype, dispose)
}

/**
 * Makes `using` without `await` throw an error that names the mistake, and ends the resource in the
 * background. The error of the runtime would not name the mistake, and a lease would stay held.
 */
function refuseUsing<T extends Disposable>(prototype: T, dispose: (self: T) => Promise<unknown>): void {
  // A polyfill may have defined only the asynchronous symbol.
  if (Symbol.dispose === undefined) return
  const name = prototype.constructor.name
  const value = function (this: T): never {
    dispose(this).catch(ignore)
    throw new TypeError(
      `A ${name} ends asynchronously, so "using" does not wait for its end: write "await using". The ${name} is ending now`,
    )
  }
  Object.defineProperty(prototype, Symbol.dispose, { value, writable: true, configurable: true })
}
