-- Ends leases, and the places in the queue of those who wait. KEYS: the locks, then their queues; ARGV: a token for
-- each.
-- Answers one value for each: 1 if the token held the lock, 0 if nobody did, -1 if somebody else does; or the server's
-- error.
--
-- As long as nobody waits, a lease that is ended is a key that is deleted. MGET and not GET, because to it what is no
-- string is nothing: the rules look closer at whatever does not belong to the token.
local KEYS, ARGV, call = KEYS, ARGV, redis.pcall
local count = #KEYS / 2
local rules

local function by_rules(i)
  if not rules then
    local time = redis.call('TIME')
    rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
  end
  local done, answer = pcall(rules.release, KEYS[i], KEYS[count + i], ARGV[i])
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  return answer
end

-- One by itself goes without the tables that many share.
if count == 1 then
  if call('MGET', KEYS[1])[1] == ARGV[1] and call('EXISTS', KEYS[2]) == 0 then
    return { call('DEL', KEYS[1]) }
  end
  return { by_rules(1) }
end

local owners = call('MGET', unpack(KEYS, 1, count))
if owners.err then return owners end
local queued = call('EXISTS', unpack(KEYS, count + 1)) ~= 0
local answers, ended, places, held, other, others = {}, {}, {}, 0, {}, 0
for i = 1, count do
  if owners[i] ~= ARGV[i] or queued and call('EXISTS', KEYS[count + i]) ~= 0 then
    others = others + 1
    other[others] = i
  else
    held = held + 1
    ended[held], places[held] = KEYS[i], i
    answers[i] = 1
  end
end

local gone = {}
if others > 0 then
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

local deleted = call('DEL', unpack(ended))
if deleted == held then return answers end
-- The same release twice, or a server that refuses.
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
