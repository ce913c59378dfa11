-- Reads the body once and tells the routes what it asks for.
--
-- Sets: header x-tg-model (the route key), x-tg-body-bytes, metadata tg.t0_us, tg.prompt_estimate, and on a streamed
-- answer tg.ttft_us. Client-sent x-tg-* headers are removed before this filter runs (early header mutation).
--
-- A runtime error in a Lua filter lets the request pass. So nothing here grants anything: without x-tg-model the only
-- routes left are closed ones.

local MAX_DEPTH = 200      -- deeper JSON is refused; engines' own parsers give up between 500 and 1000
local MAX_TOKENS = 200000  -- strings and brackets; each costs about half a microsecond, in which no stream moves
local MAX_MODEL_BYTES = 256
local BYTES_PER_TOKEN = 4  -- rule of thumb for English text; an estimate, never a bill
local QUOTE, BACKSLASH = 34, 92

local COMPLETION_PATHS = {
  ["/v1/chat/completions"] = true,
  ["/v1/completions"] = true,
  ["/v1/embeddings"] = true,
  ["/v1/responses"] = true,
}

local find, byte, sub = string.find, string.byte, string.sub

-- Returns the index of the quote that closes the string whose first character is at `i`, or nil.
local function string_end(s, i)
  while true do
    local q = find(s, '"', i, true)
    if not q then return nil end
    local b = q - 1
    while b >= i and byte(s, b) == BACKSLASH do b = b - 1 end
    -- An even number of backslashes before it leaves the quote unescaped.
    if (q - 1 - b) % 2 == 0 then return q end
    i = q + 1
  end
end

-- Returns the text of a JSON string with its escapes resolved, or nil when it is not plain printable ASCII.
local function plain_text(raw)
  if find(raw, "\\", 1, true) then
    local bad = false
    raw = raw:gsub("\\(u?)(.?)(%x?%x?%x?)", function(u, first, rest)
      if u == "u" then
        local code = tonumber(first .. rest, 16)
        if not code or #rest ~= 3 or code < 33 or code > 126 then bad = true return "" end
        return string.char(code)
      end
      if first == "/" or first == '"' or first == "\\" then return first .. rest end
      bad = true
      return ""
    end)
    if bad then return nil end
  end
  if #raw == 0 or #raw > MAX_MODEL_BYTES or find(raw, "[^\33-\126]") then return nil end
  return raw
end

-- Returns the value of the top-level key "model" of a JSON object as it stands in the body, or nil and what is wrong.
-- Structural, not a full validator: the engine is the final judge of the JSON.
local function top_level_model(s)
  local start = find(s, "%S")
  if not start or byte(s, start) ~= 123 then return nil, "the body must be a JSON object" end
  local stack, depth, i = {}, 0, start
  local model
  for _ = 1, MAX_TOKENS do
    local at = find(s, '[{}%[%]"]', i)
    if not at then return nil, "the body is not valid JSON: it ends too early" end
    local c = byte(s, at)
    if c == QUOTE then
      local close = string_end(s, at + 1)
      if not close then return nil, "the body is not valid JSON: a string does not end" end
      i = close + 1
      if depth == 1 then
        local colon = find(s, "^%s*:", i)
        if colon then
          local key = sub(s, at + 1, close - 1)
          if find(key, "\\", 1, true) then return nil, "escape sequences in top-level keys are refused" end
          if key == "model" then
            if model then return nil, "the key 'model' stands twice" end
            local _, open = find(s, '^%s*:%s*"', i)
            if not open then return nil, "'model' must be a string" end
            local last = string_end(s, open + 1)
            if not last then return nil, "the body is not valid JSON: a string does not end" end
            model = sub(s, open + 1, last - 1)
            i = last + 1
          end
        end
      end
    elseif c == 123 or c == 91 then
      depth = depth + 1
      if depth > MAX_DEPTH then return nil, "the body nests deeper than 200 levels" end
      stack[depth] = c
      i = at + 1
    else
      -- '}' is '{' + 2 and ']' is '[' + 2.
      if depth == 0 or stack[depth] + 2 ~= c then return nil, "the body is not valid JSON: brackets do not match" end
      depth = depth - 1
      i = at + 1
      if depth == 0 then
        if find(s, "%S", i) then return nil, "the body is not valid JSON: text follows the object" end
        if not model then return nil, "you must provide a 'model' parameter" end
        return model
      end
    end
  end
  return nil, "the body holds more than 200000 strings and brackets"
end

local function refuse(handle, text)
  handle:respond({[":status"] = "400"}, text)
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local path = headers:get(":path") or ""
  local query = find(path, "?", 1, true)
  if query then path = sub(path, 1, query - 1) end
  if headers:get(":method") ~= "POST" or not COMPLETION_PATHS[path] then return end
  local metadata = handle:streamInfo():dynamicMetadata()
  metadata:set("tg", "t0_us", tonumber(handle:timestampString(EnvoyTimestampResolution.MICROSECOND)))

  local body = handle:body()
  local size = body and body:length() or 0
  if size == 0 then return refuse(handle, "the body is empty; it must be a JSON object") end
  local raw, problem = top_level_model(body:getBytes(0, size))
  if not raw then return refuse(handle, problem) end

  metadata = handle:streamInfo():dynamicMetadata()
  metadata:set("tg", "prompt_estimate", math.ceil(size / BYTES_PER_TOKEN))
  headers = handle:headers()  -- the object from before body() is dead
  -- A name no policy can have: it leads to the 404 for unknown models.
  headers:replace("x-tg-model", plain_text(raw) or "(not printable ASCII)")
  headers:replace("x-tg-body-bytes", tostring(size))
  handle:clearRouteCache()
end

function envoy_on_response(handle)
  local kind = handle:headers():get("content-type")
  if not kind or not find(kind, "text/event-stream", 1, true) then return end
  -- Waits for the first chunk only; the later ones pass without entering Lua.
  local first = handle:bodyChunks()()
  if not first then return end
  local metadata = handle:streamInfo():dynamicMetadata()
  local ours = metadata:get("tg")
  if ours and ours["t0_us"] then
    local now = tonumber(handle:timestampString(EnvoyTimestampResolution.MICROSECOND))
    metadata:set("tg", "ttft_us", now - ours["t0_us"])
  end
end
