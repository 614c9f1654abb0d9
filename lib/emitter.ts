import { EventEmitter } from 'node:events'
import type * as api from '../index'

type EventMap<Events> = Record<keyof Events, unknown[]>

/** Node's own, as strict about the names of events as the public types are. */
export const Emitter = EventEmitter as new <Events extends EventMap<Events>>() => api.Emitter<Events>
