-- Ends leases, and removes waiters from the queue.
--
-- KEYS  the locks, then their :queue keys, in the same order; or one lock and its :fence key
-- ARGV  a token for each lock. An empty one ends every lease of the lock. So does a *, which also
--       keeps the lock from being repaired for a while
--
-- Answers one value for each lock: 1 if the token held it, 0 if no token did, -1 if another token
-- does; or the server's error.
--
-- While no client waits, deleting the key ends the lease. MGET and not GET: to MGET, a key that is
-- no string is missing. The rules look closer at a lock that does not belong to the token.
--
-- One lock comes with its :fence key: while a slot moves to another node, a script may only be
-- given keys that exist, and a lock that is held rarely has a queue, but always a fence.
local KEYS, ARGV, try = KEYS, ARGV, redis.pcall
local count = #KEYS / 2
local answers, ended, places, held, other, others = {}, {}, {}, 0, {}, 0
-- The first waiter of one lock, and the text of its :fence key.
local head, fence_text

if count == 1 then
  local known = try('MGET', KEYS[1], KEYS[2])
  if known[1] == ARGV[1] then
    fence_text = known[2]
    -- Without QUEUED before the text, there is no queue.
    if fence_text and string.sub(fence_text, 1, 1) ~= 'q' then return { try('DEL', KEYS[1]) } end
    local first = try('ZRANGE', string.sub(KEYS[2], 1, -6) .. 'queue', 0, 0)
    head = first[1]
    if not first.err and not head then return { try('DEL', KEYS[1]) } end
  end
  others, other[1] = 1, 1
else
  local owners = try('MGET', unpack(KEYS, 1, count))
  if owners.err then return owners end
  local queued = try('EXISTS', unpack(KEYS, count + 1)) ~= 0
  for i = 1, count do
    if owners[i] ~= ARGV[i] or queued and try('EXISTS', KEYS[count + i]) ~= 0 then
      others = others + 1
      other[others] = i
    else
      held = held + 1
      ended[held], places[held] = KEYS[i], i
      answers[i] = 1
    end
  end
end

local gone = {}
if others > 0 then
  --[[include prelude]]
  --[[include fence_text]]
  --[[include waiter_text]]
  --[[include hand_over]]

  -- Hands one lock over as the rules do, in the common case: no waiter has lost its place, and the
  -- first one wants an exclusive lease and listens. Making the rules would take as long as all
  -- other steps together, and the next holder waits for its message. Returns true if it handed the
  -- lock over. Otherwise, nothing has changed.
  local function hand_over_at_once(token)
    local time = call('TIME')
    local now = sub('000000' .. time[1], -10) .. sub('000000' .. time[2], -6)
    -- The time is the fence. A waiter that got its notice has its token in the text, and no place
    -- in the queue any more.
    local last, _, whose = decode_fences(fence_text)
    if whose ~= token or last >= now then return false end
    local names = sub(KEYS[2], 1, -6)
    local first_end = call('ZRANGE', names .. 'alive', 0, 0, 'WITHSCORES')[2]
    if not first_end or tonumber(first_end) <= tonumber(sub(now, 1, 13)) then return false end
    local most, number, grant, channel, name = decode_waiter(call('HGET', names .. 'waiters', head) or '')
    if most ~= '0' or not takes_fence(channel) then return false end
    last = format(DIGITS, now + GRANT_FENCES - 1)
    hand_over(KEYS[1], names, head, grant, now, last, GRANT_BACK, name, channel, number)
    return true
  end

  if head and fence_text then
    local done, is_handed_over = pcall(hand_over_at_once, ARGV[1])
    if done and is_handed_over then return { 1 } end
  end
  local rules
  local function by_rules(i)
    if not rules then
      local time = call('TIME')
      rules = (function(now_us)
        --[[include rules]]
        --[[include ending]]
        return rules
      end)(time[1] * 1000000 + time[2])
    end
    local done, answer = pcall(rules.release, KEYS[i], KEYS[count + i], ARGV[i])
    if not done and type(answer) ~= 'table' then answer = { err = answer } end
    return answer
  end

  -- Requests on one lock keep their order.
  for i = 1, count do
    if gone[KEYS[i]] then
      for j = 1, count do answers[j] = by_rules(j) end
      return answers
    end
    gone[KEYS[i]] = true
  end
  for _, i in ipairs(other) do answers[i] = by_rules(i) end
  if held == 0 then return answers end
end

local deleted = try('DEL', unpack(ended))
if deleted == held then return answers end
-- The same release came twice, or the server refused to delete.
gone = {}
for _, i in ipairs(places) do
  if type(deleted) == 'table' then
    answers[i] = deleted
  elseif gone[KEYS[i]] then
    answers[i] = 0
  end
  gone[KEYS[i]] = true
end
return answers
