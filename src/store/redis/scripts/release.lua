-- Ends leases. KEYS: the locks; ARGV: a token for each.
-- Answers one value for each: 1 if the token held the lock, 0 if nobody did, -1 if somebody else does; or the server's
-- error.
local call = redis.pcall
local count, held = #KEYS, 0
local answers, ended = {}, {}
local owners = call('MGET', unpack(KEYS))

local function not_held(lock)
  if owners.err then return owners end
  -- A read-only replica does not know what it says, and MGET shows no difference between nothing and no string.
  -- GETEX is a write and thus refused by the former; it tells the latter.
  local owner = call('GETEX', lock)
  if not owner then return 0 end
  if owner.err then return owner end
  return -1
end

for i = 1, count do
  if owners[i] == ARGV[i] then
    answers[i] = 1
    held = held + 1
    ended[held] = KEYS[i]
  else
    answers[i] = not_held(KEYS[i])
  end
end
if held == 0 then return answers end

local deleted = call('DEL', unpack(ended))
if deleted == held then return answers end
-- The same release twice, or a server that refuses.
local gone = {}
for i = 1, count do
  if answers[i] == 1 then
    if type(deleted) == 'table' then
      answers[i] = deleted
    elseif gone[KEYS[i]] then
      answers[i] = 0
    end
    gone[KEYS[i]] = true
  end
end
return answers
