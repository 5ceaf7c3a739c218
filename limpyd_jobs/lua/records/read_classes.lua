-- verb: read classes
-- what: returns what processes wrote of job classes, and of models, as far as it is not too much
-- KEYS[1]  hash of the classes
-- request
--   most       how many are returned
--   longest    how many bytes one has at most
--   names      JSON, a list: the beginnings of the keys of models that the caller knows
-- reply
--   done   {classes: [field, text]…, left_out: how many are not returned, unread: of those beginnings, and of those that
--          the classes say, the ones that this user of Redis may not read}

--@include envelope

local LARGEST = 8000000  -- bytes of all of them

-- Whether this user of Redis may not read a key. Only the text of the refusal tells that from that of the command.
local function is_unread(key)
  local reply = redis.pcall('EXISTS', key)
  local why = type(reply) == 'table' and reply.err or ''
  return string.find(why, 'ermissions to access') or string.find(why, "can't access")
end

local unread, asked = {}, {}

local function note_unread(name)
  if not asked[name] and is_unread(name .. ':collection') then unread[#unread + 1] = name end
  asked[name] = true
end

for _, name in ipairs(request.names and cjson.decode(request.names) or {}) do note_unread(name) end

local found, size = {}, 0
local names = redis.pcall('HKEYS', KEYS[1])
if names.err then return answer('done', {classes = found, left_out = 0, unread = unread}) end
table.sort(names)
for _, name in ipairs(names) do
  local own = #name + redis.call('HSTRLEN', KEYS[1], name)
  if own <= tonumber(request.longest) and size + own <= LARGEST then
    size = size + own
    local text = redis.call('HGET', KEYS[1], name)
    found[#found + 1] = {name, text}
    local begin = string.match(text, '^%["[^"]*","([^"\\]*)"')
    if begin then note_unread(begin) end
  end
  if #found == tonumber(request.most) then break end
end
return answer('done', {classes = found, left_out = #names - #found, unread = unread})
