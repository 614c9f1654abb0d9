-- Tells who holds locks. KEYS: the locks, then their fence keys.
-- Answers one value for each: nil if nobody does; a list of the remaining ms (-1: it never expires) and, unless
-- another library holds the lock, the fence and the holder's name; or the server's error.
local call = redis.pcall
local count = #KEYS / 2
local answers = {}

local function inspect(lock, side)
  -- GETEX is a write, which a replica with old data refuses.
  local owner = call('GETEX', lock)
  if not owner or owner.err then return owner end
  local left = redis.call('PTTL', lock)
  local known = call('GET', side)
  local fence, whose, holder = string.match(known and not known.err and known or '', '^(%d+) (%S+) (.*)$')
  if whose ~= owner then return { left } end
  return { left, tonumber(fence), holder }
end

for i = 1, count do
  answers[i] = inspect(KEYS[i], KEYS[count + i])
end
return answers
