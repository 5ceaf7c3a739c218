-- verb: note lost
-- what: notes that a worker ended whose claim has lapsed, unless its presence did so: it died before its first sign of life
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model, pk
--   name      of the worker
--   host, pid
--   details   JSON, of what is known of it
-- reply
--   done   also if it is there, or its end is noted already: nothing is changed then

--@include presences

local model, pk = model_of(request.model), request.pk

local function is_noted()
  for _, entry in ipairs(redis.pcall('XREVRANGE', ENDED, '+', '-', 'COUNT', MAX_ENDED)) do
    local words = entry[2]
    for at = 1, #words - 1, 2 do
      if words[at] == 'name' and words[at + 1] == request.name then return true end
    end
  end
end

if is_leased(KEYS[1], pk) or redis.call('EXISTS', hash_key(model, pk)) == 1 or is_noted() then return answer('done') end
add_note({
  'how', 'silent', 'until', '', 'name', bounded(request.name, LONGEST_NAME), 'host', bounded(request.host, LONGEST_NAME),
  'pid', request.pid, 'since', '', '_lease', '', 'details', kept_details(request.details),
})
return answer('done')
