-- Hands a lock over to a waiter. The names of the lock's other keys begin with `names`.
--
-- The notice to a waiter is its NUMBER, or "NUMBER FENCE" if it gets an exclusive lease. A CHANNEL
-- with a {tag} lies in a slot of this node of a cluster. SPUBLISH keeps its notices off other
-- nodes.
local FENCE_LIFE = 3600000
-- How many fences a lease gets when it is handed over, and how many come before the last of them.
local GRANT_FENCES, GRANT_BACK = 64, '63'

local function forget(names, token)
  if call('ZREM', names .. 'queue', token) == 1 then
    call('ZREM', names .. 'alive', token)
    call('HDEL', names .. 'waiters', token)
  end
end

-- Returns how many clients got the notice here, or the server's error. If the slot of the lock or
-- the slot of the channel has moved, the channel is on another node, and no client gets the notice.
local function publish(channel, words)
  if not find(channel, '{', 1, true) then return redis.pcall('PUBLISH', channel, words) end
  local told = redis.pcall('SPUBLISH', channel, words)
  return type(told) == 'table' and find(told.err, 'non local', 1, true) and 0 or told
end

-- Returns true if the notice to the waiter may have a fence: its client listens at this server. A
-- client that gets a fence takes the lease up without a question. This server does not count a
-- client that listens at a replica, so the waiter of that client does not get the lease. But the
-- replica passes the notice on to the client, so the notice must have no fence.
local function takes_fence(channel)
  if channel == NO_CHANNEL or channel == LOST_CHANNEL or sub(channel, -1) == NEEDS_REPLICAS then
    return false
  end
  local query = find(channel, '{', 1, true) and 'SHARDNUMSUB' or 'NUMSUB'
  -- If the user has no right to this command, the number of listeners is unknown.
  local listeners = redis.pcall('PUBSUB', query, channel)[2]
  return listeners and listeners > 0
end

-- Gives the lock to `token` for `ttl` ms. fences: the text of the fence key, without QUEUED.
local function give(lock, names, token, ttl, fences)
  local key, text = names .. 'fence', QUEUED .. fences
  -- Write the fence before it is published: a waiter acts on the message alone.
  if not call('SET', key, text, 'KEEPTTL', 'XX') then call('SET', key, text, 'PX', FENCE_LIFE) end
  call('SET', lock, token, 'PX', ttl)
end

-- Gives the lock to a waiter, and sends it a notice if there is a channel. first, last: the digits
-- of its fences.
local function hand_over(lock, names, token, ttl, first, last, back, name, channel, number)
  give(lock, names, token, ttl, encode_fences(last, back, token, name))
  if channel then publish(channel, number .. ' ' .. first) end
  forget(names, token)
end
